"""Scores that mean nothing, the same in every run: a baseline for choices that should mean something."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def fixed_scores(patch: Tensor, stream: Tensor, stage: int) -> Tensor:
    """Pseudo-random scores in [0, 1) that depend on the numbers of patch, stream and stage alone.

    patch (B, N) int64, stream (B, 1) int64 -> (B, N) float32. An integer hash instead of a generator: no
    state, the same on every device, whatever else is in the batch, and in compiled code.
    """
    mixed = (patch * 73856093 + 1) ^ (stream * 19349663) ^ ((stage + 1) * 83492791)
    for _ in range(3):
        mixed = ((mixed ^ (mixed >> 16)) & _MASK) * 0x45D9F3B & _MASK
    # 24 bits are what a float32 holds exactly.
    return (mixed >> 8).to(torch.float32) / 2**24


def random_scores(
    patch: Tensor, stream: Tensor, stage: int, training: bool, generator: torch.Generator | None = None
) -> Tensor:
    """Scores (B, N) by chance: drawn anew while training, `fixed_scores` in test."""
    if training:
        return torch.rand(patch.shape, device=patch.device, generator=generator)
    return fixed_scores(patch, stream, stage)
