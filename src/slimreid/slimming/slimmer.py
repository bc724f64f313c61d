"""One stream of patches, slimmed to a few tokens under the eyes of any number of guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError
from slimreid.slimming.losses import ratio_loss
from slimreid.slimming.merging import DualPatchMerger, PatchMerger, merged_count
from slimreid.slimming.presets import DEFAULT, SlimmingOptions, slimming_options
from slimreid.slimming.scoring import PatchScorer, check_presence, score_patches, similarities
from slimreid.slimming.selection import Selection, keep_top_patches


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

    @property
    def selection(self) -> Selection:
        """The (first) choice of patches."""
        return self.selections[0]


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
    """Raw similarities (B, G, N) as the options want them, with or without gradient."""
    if not options.similarity_gradient:
        patches, vectors = patches.detach(), vectors.detach()
    return similarities(patches, vectors, options.similarity)


def select(
    patches: Tensor,
    learned: Tensor | None,
    sims: Tensor,
    present: Tensor | None,
    options: SlimmingOptions,
    *,
    names: Sequence[str] = (),
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Selection:
    """Score and keep: patches (B, N, C), learned (B, N), sims (B, 1 + G, N) with the own one first."""
    scores = score_patches(
        learned,
        sims[:, 0],
        sims[:, 1:],
        present=present,
        names=names,
        beta=options.beta,
        normalise=options.normalise,
        combine=options.combine,
    )
    return keep_top_patches(
        patches if options.selection_gradient else patches.detach(),
        scores.total if options.selection_gradient else scores.total.detach(),
        options.keep_ratio,
        scores=scores.sources,
        estimator=options.estimator,
        tau=options.tau,
        training=training,
        generator=generator,
        zero_leftover=options.zero_leftover,
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
        scorers = 2 if options.merge == "dual" and options.branch_scorers == "own" else 1
        self.scorers = nn.ModuleList(PatchScorer(dim) for _ in range(scorers if options.learned else 0))
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
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """patches (B, N, C), own (B, C), guides (B, G, C), present (B, G) bool -> `Slimmed`.

        `own` is left out where the preset takes the mean of the patches. `names` label the guides in
        `selection.scores`. Raises `ModelError` on missing vectors or shapes that do not fit.
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
        return self.slim(patches, sims[:, 0], sims[:, 1:], present, names=names, generator=generator)

    def slim(
        self,
        patches: Tensor,
        own: Tensor,
        guides: Tensor,
        present: Tensor | None = None,
        *,
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> Slimmed:
        """The same from ready similarities: own (B, N), guides (B, G, N)."""
        options = self.options
        sims = torch.cat([own[:, None], guides], 1)
        selections = []
        for branch in range(options.branches):
            chosen, chosen_present, chosen_names = sims, present, names
            if options.branches == 2 and options.branch_guides == "one":
                if guides.shape[1] != 2:
                    raise ModelError(f"one guide for each of two choices: 2 guides, not {guides.shape[1]}")
                chosen = torch.stack([own, guides[:, branch]], 1)
                chosen_present = None if present is None else present[:, branch : branch + 1]
                chosen_names = names[branch : branch + 1]
            learned = self.scorers[min(branch, len(self.scorers) - 1)](patches) if self.scorers else None
            selections.append(
                select(
                    patches,
                    learned,
                    chosen,
                    chosen_present,
                    options,
                    names=chosen_names,
                    training=self.training,
                    generator=generator,
                )
            )
        return self._merge(selections)

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
