"""SEPS (ICLR 2026): patches of one image selected under the guidance of texts, in its three versions.

SDTPS replaces the texts by other modalities; see `after_backbone`. These versions are here for reference and
comparison. They have options of their own, since no model is configured by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from slimreid.config.values import check_word
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction.estimators import Estimator
from slimreid.token_reduction.merge import (
    PatchMerger,
    ReducedTokens,
    merge_patches,
    merged_count,
    weight_network,
)
from slimreid.token_reduction.score import PatchScorer, min_max, similarities
from slimreid.token_reduction.select import Selection, keep_top_patches

BETA = 0.25
"""Weight of the guides in the score (eq. 3)."""


@dataclass(frozen=True)
class SepsOptions:
    """In what the versions of SEPS differ."""

    keep_ratio: float = 0.5
    """Share of patches kept, in (0, 1]."""
    merge_ratio: float = 0.4
    """Merged tokens per kept patch, in (0, 1]."""
    scorers: int = 1
    """Learned scores: none (0), one for all selections (1), or one for each (2)."""
    similarity: str = "cosine"
    """Similarity of a patch and a guide: `cosine`, or `dot` for v·e / C."""
    eq3: bool = True
    """Score by eq. 3 from similarities in [0, 1]; false = the plain sum of raw similarities."""
    own_mean: bool = False
    """The image's own guide is the mean of its patches, instead of a vector that is given."""
    dual: bool = False
    """Two selections, merged by two networks with one scale, results added."""
    one_text_each: bool = False
    """With `dual`: each selection is guided by one text, instead of both by all."""
    gumbel: bool = False
    """Gumbel–softmax gradient of the decision, which then masks the merge."""
    similarity_gradient: bool = True
    """Whether gradients flow through the similarities."""
    selection_gradient: bool = True
    """Whether kept and leftover patches carry gradients."""


SEPS: dict[str, SepsOptions] = {
    "paper": SepsOptions(similarity="dot", dual=True, one_text_each=True, gumbel=True),
    "released": SepsOptions(
        scorers=0,
        eq3=False,
        own_mean=True,
        similarity_gradient=False,
        selection_gradient=False,
    ),
    "paper_code": SepsOptions(scorers=2, own_mean=True, dual=True, similarity_gradient=False),
}
"""The paper, the released code, and the code of the paper's version."""


def paper_ratio_loss(
    decisions: Sequence[Tensor], ratio: float, lambdas: Sequence[float] | None = None
) -> Tensor:
    """(ρ − Σ λ_i · mean D_i)², a scalar; decisions (…, N), λ = 1 unless given.

    Raises `ConfigError` when there are not as many λ as decisions.
    """
    lambdas = [1.0] * len(decisions) if lambdas is None else lambdas
    if len(lambdas) != len(decisions):
        raise ConfigError(f"{len(decisions)} decisions need as many lambdas, not {len(lambdas)}")
    if decisions[0].numel() == 0:
        return decisions[0].sum()
    kept = torch.stack([weight * d.mean() for weight, d in zip(lambdas, decisions, strict=True)])
    return (ratio - kept.sum()) ** 2


def released_ratio_loss(decisions: Sequence[Tensor], ratio: float) -> Tensor:
    """(mean(Σ D_i) − ρ)², a scalar; decisions (…, N)."""
    if decisions[0].numel() == 0:
        return decisions[0].sum()
    return (torch.stack(tuple(decisions)).sum(0).mean() - ratio) ** 2


class DualPatchMerger(nn.Module):
    """Two weight networks for two selections of patches, one shared scale; the results are added."""

    def __init__(self, dim: int, merged_tokens: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList(weight_network(dim, merged_tokens) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(1, 1, 1))

    def forward(
        self, kept: Sequence[Tensor], decisions: Sequence[Tensor | None]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Two times kept (B, K, C), decision (B, K) -> merged (B, N_c, C), two weights (B, N_c, K)."""
        merged, weights = zip(
            *(
                merge_patches(patches, network(patches) * self.scale, decision=decision)
                for patches, network, decision in zip(kept, self.weights, decisions, strict=True)
            ),
            strict=True,
        )
        return merged[0] + merged[1], weights


class SepsReducer(nn.Module):
    """Reduces the patches (B, N, C) of one image, guided by its own vector and by texts.

    Args:
        dim: Channels of the patches.
        version: A name of `SEPS`, or options.
        num_patches: The usual N, from which the number of merged tokens follows.

    Raises:
        ConfigError: for an unknown version.
    """

    def __init__(self, dim: int, version: str | SepsOptions, *, num_patches: int) -> None:
        super().__init__()
        if isinstance(version, str):
            check_word("SEPS version", version, SEPS)
            version = SEPS[version]
        self.options = options = version
        tokens = merged_count(num_patches, options.merge_ratio, options.keep_ratio)
        self.scorers = nn.ModuleList(PatchScorer(dim) for _ in range(options.scorers))
        self.merger = DualPatchMerger(dim, tokens) if options.dual else PatchMerger(dim, tokens)

    def forward(
        self,
        patches: Tensor,
        own: Tensor | None,
        texts: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> ReducedTokens:
        """patches (B, N, C), own (B, C) unless it is their mean, texts (B, G, C) -> tokens (B, T, C).

        Raises `ModelError` on shapes that do not fit.
        """
        if patches.ndim != 3 or patches.shape[1] == 0:
            raise ModelError(f"patches must be (B, N, C) with N ≥ 1, not {tuple(patches.shape)}")
        options, (B, _, C) = self.options, patches.shape
        own = patches.mean(1) if options.own_mean else own
        if own is None or own.shape != (B, C):
            shape = None if own is None else tuple(own.shape)
            raise ModelError(f"the image's own vector must be ({B}, {C}), not {shape}")
        inputs = patches, torch.cat([own[:, None], texts], 1)
        if not options.similarity_gradient:
            inputs = patches.detach(), inputs[1].detach()
        sims = similarities(*inputs, options.similarity)
        return self.reduce(patches, sims, generator=generator)

    def reduce(
        self, patches: Tensor, sims: Tensor, *, generator: torch.Generator | None = None
    ) -> ReducedTokens:
        """The same from ready similarities (B, 1 + G, N), that of the own vector first."""
        options = self.options
        selections = [
            self._select(branch, patches, sims, generator) for branch in range(2 if options.dual else 1)
        ]
        kept = [selection.kept for selection in selections]
        decisions = [s.decision.gather(1, s.index) if options.gumbel else None for s in selections]
        if isinstance(self.merger, DualPatchMerger):
            tokens, weights = self.merger(kept, decisions)
        else:
            tokens, weight = self.merger(kept[0], decisions[0])
            weights = (weight,)
        leftovers = [s.leftover for s in selections if s.leftover is not None]
        if leftovers:  # several are averaged
            tokens = torch.cat([tokens, torch.stack(leftovers).mean(0)], dim=1)
        return ReducedTokens(tokens, tuple(selections), weights)

    def _select(
        self, branch: int, patches: Tensor, sims: Tensor, generator: torch.Generator | None
    ) -> Selection:
        """The selection of one branch, from similarities (B, 1 + G, N) with the own one first."""
        options = self.options
        if options.one_text_each:
            if sims.shape[1] != 3:
                raise ModelError(f"one text for each of two selections: 2 texts, not {sims.shape[1] - 1}")
            sims = sims[:, [0, 1 + branch]]
        scores = {}
        if options.eq3:
            sims = min_max(sims)
            score = 2 * BETA * (sims[:, 1:].mean(1) + sims[:, 0])
            if self.scorers:
                scores["learned"] = self.scorers[min(branch, len(self.scorers) - 1)](patches)
                score = (1 - 2 * BETA) * scores["learned"] + score
        else:
            score = sims.sum(1)
        if not options.selection_gradient:
            patches, score = patches.detach(), score.detach()
        selection = keep_top_patches(
            patches,
            score,
            options.keep_ratio,
            estimator=Estimator("gumbel") if options.gumbel and self.training else None,
            generator=generator,
        )
        return replace(selection, scores={**scores, "self": sims[:, 0]})
