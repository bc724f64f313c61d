"""Figures of a choice of patches: how much of it lies on the object, and how much another one shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from slimreid.arrays import Bools, Doubles
from slimreid.errors import DataError
from slimreid.token_reduction import ReducedTokens


@dataclass(frozen=True)
class MaskOverlap:
    """Kept patches against the true mask; means over rows, 0 to 1."""

    on_object: float
    """Share of the kept area that shows the object."""
    chance: float
    """Share of the whole image that does: what a random choice has on average."""
    recall: float
    """Share of the object that is kept; by chance, the share of patches kept."""
    iou: float
    """Kept patches and patches that are mostly object: both over either."""


def kept_masks(reduced: ReducedTokens) -> list[Bools]:
    """Per choice (one, or one per stage in the backbone) whether each patch is kept: (B, M, N) bool."""
    found = []
    for selection in reduced.selections:
        index = selection.index.cpu()
        kept = torch.zeros(selection.score.shape, dtype=torch.bool).scatter(-1, index, True)
        found.append(kept.numpy())
    return found


def mask_overlap(kept: Bools, shares: Doubles) -> MaskOverlap:
    """kept (R, N) bool, at least one patch in each row, and shares (R, N) of each patch that are object.

    Rows without any object count for the share kept on it only. Raises `DataError` on shapes that differ.
    """
    if kept.shape != shares.shape or kept.ndim != 2:
        raise DataError(
            f"kept patches {kept.shape} and shares of the object {shares.shape} are not one (R, N)"
        )
    area = (kept * shares).sum(1)
    whole = shares.sum(1)
    shown = whole > 0
    mostly = shares >= 0.5
    union = (kept | mostly).sum(1)
    return MaskOverlap(
        on_object=float((area / kept.sum(1)).mean()),
        chance=float(shares.mean()),
        recall=float((area[shown] / whole[shown]).mean()) if shown.any() else float("nan"),
        iou=float(((kept & mostly).sum(1) / union).mean()),
    )


def shared_share(first: Bools, second: Bools) -> Doubles:
    """Share of the kept patches of `first` that `second` keeps too: two of (R, N) bool -> (R,).

    Raises `DataError` when the shapes differ.
    """
    if first.shape != second.shape:
        raise DataError(f"these are not choices among the same patches: {first.shape} and {second.shape}")
    shared: Doubles = (first & second).sum(1) / np.maximum(first.sum(1), 1)
    return shared
