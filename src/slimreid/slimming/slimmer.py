"""One stream of patches, slimmed to a few tokens under the eyes of any number of guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError
from slimreid.slimming.estimators import Temperature
from slimreid.slimming.losses import ratio_loss
from slimreid.slimming.merging import DualPatchMerger, PatchMerger, merged_count
from slimreid.slimming.presets import DEFAULT, SlimmingOptions, slimming_options
from slimreid.slimming.random_scores import random_scores
from slimreid.slimming.scoring import (
    PatchScorer,
    PatchScores,
    check_presence,
    contrast,
    score_patches,
    similarities,
)
from slimreid.slimming.selection import Selection, keep_top_patches
from slimreid.slimming.temperature import AnnealedTau


@dataclass(frozen=True)
class Slimmed:
    """The tokens that stand for a stream, and how they came about.

    For several modalities tokens are (B, M, T, C), and weights and selections have M after B too.
    """

    tokens: Tensor
    """(B, T, C): [merged ; leftover], or [kept ; leftover] without a merge."""
    selections: tuple[Selection, ...]
    """One choice of patches, two with a dual merge, or one per stage inside a backbone."""
    weights: tuple[Tensor, ...]
    """(B, N_c, K) merge weights per choice; empty without a merge."""
    ratio_loss: Tensor | None = None
    """Weighted ratio loss, a scalar, if asked for."""
    size: Tensor | None = None
    """(B, T): how many patches each token stands for; None = they count alike."""

    @property
    def selection(self) -> Selection:
        """The (first) choice of patches."""
        return self.selections[0]

    def pooled(self) -> Tensor:
        """The mean of the tokens, each counting by its size: (B, C); zero for an absent modality."""
        if self.size is None:
            return self.tokens.mean(dim=-2)
        weights = self.size / self.size.sum(-1, keepdim=True).clamp_min(1)  # absent ones have size 0
        return (self.tokens * weights[..., None].to(self.tokens.dtype)).sum(dim=-2)


def token_count(options: SlimmingOptions, num_patches: int | None, merged_tokens: int | None) -> int:
    """N_c, given as it is or through the usual number of patches; raises `ConfigError` if neither is."""
    if options.where == "inside":
        raise ConfigError("where: 'inside' slims between the blocks of a backbone, not a stream of patches")
    if merged_tokens is not None:
        if merged_tokens < 1:
            raise ConfigError(f"merged_tokens: {merged_tokens} is not at least 1")
        return merged_tokens
    if num_patches is None and options.merge != "none":
        raise ConfigError("the size of the merge is fixed at construction: give num_patches or merged_tokens")
    return merged_count(num_patches or 1, options.merge_ratio, options.keep_ratio)


def guide_similarities(patches: Tensor, vectors: Tensor, options: SlimmingOptions) -> Tensor:
    """Raw similarities (B, G, N) as the options want them, with or without gradient; zero if none is used."""
    if not {"own", "others"} & set(options.used):
        return patches.new_zeros(*vectors.shape[:2], patches.shape[1])
    if not options.similarity_gradient:
        patches, vectors = patches.detach(), vectors.detach()
    if options.centre:
        mean = patches.mean(1, keepdim=True)
        patches, vectors = patches - mean, vectors - mean
    return similarities(patches, vectors, options.similarity)


def own_contrast(patches: Tensor, options: SlimmingOptions) -> Tensor:
    """Raw contrasts (B, N) of patches (B, N, C), with or without gradient."""
    return contrast(patches if options.similarity_gradient else patches.detach())


def score_stream(
    patches: Tensor,
    sims: Tensor,
    options: SlimmingOptions,
    *,
    learned: Tensor | None = None,
    attention: Tensor | None = None,
    others_contrast: Tensor | None = None,
    present: Tensor | None = None,
    names: Sequence[str] = (),
) -> PatchScores:
    """The score of patches (B, N, C) from the sources that take part.

    sims (B, 1 + G, N) with the own similarity first; the rest as in `score_patches`. Raises `ModelError` when
    attention is a source but was not given.
    """
    used = options.used
    if "attention" in used:
        if attention is None:
            raise ModelError("'attention' is among the sources of the score, but none was given")
        attention = attention if options.similarity_gradient else attention.detach()
    others = "others" in used
    return score_patches(
        learned,
        sims[:, 0] if "own" in used else None,
        sims[:, 1:] if others else sims[:, :0],
        attention=attention if "attention" in used else None,
        contrast=own_contrast(patches, options) if "contrast" in used else None,
        others_contrast=others_contrast,
        present=present,
        names=names if others else (),
        beta=options.beta,
        normalise=options.normalise,
        combine=options.combine,
    )


def select(
    patches: Tensor,
    scores: PatchScores,
    options: SlimmingOptions,
    tau: Temperature,
    *,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Selection:
    """Keep patches (B, N, C) by their scores, as the options say."""
    return keep_top_patches(
        patches if options.selection_gradient else patches.detach(),
        scores.total if options.selection_gradient else scores.total.detach(),
        options.keep_ratio,
        scores=scores.sources,
        estimator=options.estimator,
        tau=tau,
        noise=options.noise,
        training=training,
        generator=generator,
        zero_leftover=options.zero_leftover,
        soft=options.selection == "soft",
        weigh=options.weigh_kept,
    )


def merge_decision(selection: Selection, options: SlimmingOptions) -> Tensor | None:
    """The kept entries (B, K) of D, if they shall reach the merge."""
    return selection.decision.gather(1, selection.index) if options.decision_in_merge else None


def finish(
    merged: Tensor, selections: Sequence[Selection], weights: Sequence[Tensor], options: SlimmingOptions
) -> Slimmed:
    """Join the leftovers (averaged over choices) after the merged tokens and add the ratio loss."""
    leftovers = [s.leftover for s in selections if s.leftover is not None]
    tokens = merged
    if leftovers:
        tokens = torch.cat([merged, sum(leftovers[1:], leftovers[0]) / len(leftovers)], dim=1)
    loss = None
    if options.ratio_loss != "none":
        target = options.keep_ratio if options.ratio_target is None else options.ratio_target
        decisions = [s.decision for s in selections]
        loss = options.ratio_weight * ratio_loss(
            decisions, target, options.ratio_loss, options.ratio_lambdas[: len(decisions)]
        )
    return Slimmed(tokens, tuple(selections), tuple(weights), loss)


class PatchSlimmer(nn.Module):
    """Slims one stream of patches (B, N, C), guided by its own vector and any number of others.

    `preset` is a name of `PRESETS` or ready options; single options can be changed by keyword. The
    number of merged tokens follows from `num_patches` (the usual N), or is given as `merged_tokens`;
    at run time N may differ. Raises `ConfigError` on contradictory options.
    """

    def __init__(
        self,
        dim: int,
        preset: str | SlimmingOptions = DEFAULT,
        *,
        num_patches: int | None = None,
        merged_tokens: int | None = None,
        **changes: Any,
    ) -> None:
        super().__init__()
        self.options = options = slimming_options(preset, **changes)
        if "others_contrast" in options.used:
            raise ConfigError("sources: 'others_contrast' needs the patches of others; use MultiModalSlimmer")
        scorers = 2 if options.merge == "dual" and options.branch_scorers == "own" else 1
        learned = "learned" in options.used
        self.scorers = nn.ModuleList(PatchScorer(dim) for _ in range(scorers if learned else 0))
        self.tau = AnnealedTau(options)
        self.merger: PatchMerger | DualPatchMerger | None = None
        self.merged_tokens = token_count(options, num_patches, merged_tokens)
        if options.merge != "none":
            kind = DualPatchMerger if options.merge == "dual" else PatchMerger
            self.merger = kind(dim, self.merged_tokens)

    def forward(
        self,
        patches: Tensor,
        own: Tensor | None = None,
        guides: Tensor | None = None,
        present: Tensor | None = None,
        *,
        attention: Tensor | None = None,
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """patches (B, N, C), own (B, C), guides (B, G, C), present (B, G) bool -> `Slimmed`.

        `own` is left out where the preset takes the mean of the patches; `attention` (B, N) is needed where
        it is a source. `names` label the guides in `selection.scores`. Raises `ModelError` on missing vectors
        or shapes that do not fit.
        """
        if patches.ndim != 3 or patches.shape[1] == 0:
            raise ModelError(f"patches must be (B, N, C) with N ≥ 1, not {tuple(patches.shape)}")
        B, _, C = patches.shape
        if self.options.own == "mean":
            own = patches.mean(1)
        if own is None or own.shape != (B, C):
            shape = None if own is None else tuple(own.shape)
            raise ModelError(f"the own global vector must be ({B}, {C}), not {shape}")
        guides = patches.new_zeros(B, 0, C) if guides is None else guides
        if present is not None:
            check_presence(present, B, guides.shape[1])
            # An absent vector may hold anything, also NaN, which zero weight would not stop.
            guides = guides.masked_fill(~present[..., None], 0.0)
        sims = guide_similarities(patches, torch.cat([own[:, None], guides], 1), self.options)
        return self.slim(
            patches, sims[:, 0], sims[:, 1:], present, attention=attention, names=names, generator=generator
        )

    def slim(
        self,
        patches: Tensor,
        own: Tensor,
        guides: Tensor,
        present: Tensor | None = None,
        *,
        attention: Tensor | None = None,
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """The same from ready similarities: own (B, N), guides (B, G, N), attention (B, N)."""
        sims = torch.cat([own[:, None], guides], 1)
        return self._merge(
            [
                self._select(branch, patches, sims, present, attention, names, generator)
                for branch in range(self.options.branches)
            ]
        )

    def set_progress(self, progress: float) -> None:
        """How much of training is done, 0 to 1: the temperature follows."""
        self.tau.set_progress(progress)

    def _select(
        self,
        branch: int,
        patches: Tensor,
        sims: Tensor,
        present: Tensor | None,
        attention: Tensor | None,
        names: Sequence[str],
        generator: torch.Generator | None,
    ) -> Selection:
        """The choice of one branch, from similarities (B, 1 + G, N) with the own one first."""
        options = self.options
        if options.branches == 2 and options.branch_guides == "one":
            if sims.shape[1] != 3:
                raise ModelError(f"one guide for each of two choices: 2 guides, not {sims.shape[1] - 1}")
            sims = sims[:, [0, 1 + branch]]
            present = None if present is None else present[:, branch : branch + 1]
            names = names[branch : branch + 1]
        if "random" in options.used:
            everything = torch.arange(patches.shape[1], device=patches.device).expand(patches.shape[:2])
            drawn = random_scores(everything, everything[:, :1] * 0, 0, self.training, generator)
            scores = PatchScores(drawn, {"random": drawn})
        else:
            learned = self.scorers[min(branch, len(self.scorers) - 1)](patches) if self.scorers else None
            scores = score_stream(
                patches, sims, options, learned=learned, attention=attention, present=present, names=names
            )
        return select(patches, scores, options, self.tau.value, training=self.training, generator=generator)

    def _merge(self, selections: list[Selection]) -> Slimmed:
        decisions = [merge_decision(s, self.options) for s in selections]
        if isinstance(self.merger, DualPatchMerger):
            first, second = selections
            merged, weights = self.merger((first.kept, second.kept), (decisions[0], decisions[1]))
            return finish(merged, selections, weights, self.options)
        if self.merger is None:
            return finish(selections[0].kept, selections, (), self.options)
        merged, weight = self.merger(selections[0].kept, decisions[0])
        return finish(merged, selections, (weight,), self.options)
