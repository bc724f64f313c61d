"""The tokens that are left of a stream of patches, and how they came about."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from slimreid.token_reduction.modality_packing import Packing
from slimreid.token_reduction.select import Selection


@dataclass(frozen=True)
class ReducedTokens:
    """The result of a token reduction for R rows.

    For several modalities, after `unpack`, everything is (B, M, …) instead of (R, …).
    """

    tokens: Tensor
    """(R, T, C): [merged ; leftover], or [kept ; leftover] without a merge."""
    selections: tuple[Selection, ...]
    """The selection of patches; one per stage for reduction in the backbone, if traced."""
    weights: tuple[Tensor, ...] = ()
    """(R, N_c, K) merge weights; empty without a merge."""
    kept_share: Tensor | None = None
    """(R,): the mean of each row's decision, with its gradient, where the number kept varies."""
    size: Tensor | None = None
    """(R, T): how many patches each token stands for, 0 for an empty place; None = they count alike."""

    @property
    def selection(self) -> Selection:
        """The (first) selection."""
        return self.selections[0]

    def pooled(self) -> Tensor:
        """The mean of the tokens, each counting by its size: (R, C); zero for an absent modality."""
        return mean_by_size(self.tokens, self.size)

    def unpack(self, packing: Packing) -> ReducedTokens:
        """Spread the rows over (B, M, …), zero where a modality is absent."""
        return replace(
            self,
            tokens=packing.unpack(self.tokens),
            selections=tuple(_spread(selection, packing) for selection in self.selections),
            weights=tuple(packing.unpack(weights) for weights in self.weights),
            kept_share=None if self.kept_share is None else packing.unpack(self.kept_share),
            size=None if self.size is None else packing.unpack(self.size),
        )


def mean_by_size(tokens: Tensor, size: Tensor | None) -> Tensor:
    """Mean of tokens (..., T, C), each counting by its size (..., T): (..., C); None = they count alike."""
    if size is None:
        return tokens.mean(dim=-2)
    weights = size / size.sum(-1, keepdim=True).clamp_min(1)  # absent ones have size 0
    return (tokens * weights[..., None].to(tokens.dtype)).sum(dim=-2)


def _spread(selection: Selection, packing: Packing) -> Selection:
    return Selection(
        index=packing.unpack(selection.index),
        kept=packing.unpack(selection.kept),
        decision=packing.unpack(selection.decision),
        score=packing.unpack(selection.score),
        leftover=None if selection.leftover is None else packing.unpack(selection.leftover),
        scores={name: packing.unpack(value) for name, value in selection.scores.items()},
    )
