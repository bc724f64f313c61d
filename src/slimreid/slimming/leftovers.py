"""Tokens that stand for the patches dropped so far: one in all, or one per region of the image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

NOTHING = -1e4
"""Log-weight of a region from which nothing was dropped yet; finite, so that it has no NaN gradient."""


def regions_of(positions: Tensor, regions: tuple[int, int]) -> Tensor:
    """Region (row by row) in which each patch lies: positions (B, n, 2) in [−1, 1] -> (B, n) int64."""
    down, across = regions
    y, x = ((positions + 1) / 2).unbind(-1)
    row, column = (y * down).long().clamp(0, down - 1), (x * across).long().clamp(0, across - 1)
    return row * across + column


def leftover_weights(
    score: Tensor,
    kept: Tensor,
    region: Tensor | None = None,
    count: int = 1,
    carried: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights by which dropped patches, and leftovers of earlier stages, become L leftover tokens.

    score (B, n), kept (B, n) bool with at least one patch dropped, region (B, n) in 0 … count − 1, or None
    for a single one; carried (B, L): log-weight of the earlier leftovers, which follow the patches ->
    weights (B, L, n) or (B, L, n + L), each row summing to 1, and the new log-weights (B, L).

    In each region the weights are the softmax over the scores of *all* patches dropped so far: an earlier
    leftover counts with the sum of exp(score) of its patches. A region from which nothing was dropped
    has the mean of its patches, until something is.
    """
    logits = score.masked_fill(kept, -math.inf)[:, None]  # (B, 1, n)
    if region is None:
        mass = logits.logsumexp(-1)  # (B, 1)
    else:
        cells = torch.arange(count, device=score.device)[:, None]
        member = region[:, None] == cells  # (B, L, n)
        logits = logits.masked_fill(~member, -math.inf)
        empty = ~(member & ~kept[:, None]).any(-1, keepdim=True)  # (B, L, 1)
        whole = member | ~member.any(-1, keepdim=True)  # all patches where the region has none
        logits = torch.where(empty, torch.zeros_like(logits).masked_fill(~whole, -math.inf), logits)
        mass = torch.where(empty[..., 0], NOTHING, logits.logsumexp(-1))
    weights = logits.softmax(-1)
    if carried is None:
        return weights, mass
    earlier = (carried - mass).sigmoid()  # (B, L): share of the leftover that is there already
    weights = torch.cat([weights * (1 - earlier)[..., None], torch.diag_embed(earlier)], dim=-1)
    return weights, torch.logaddexp(carried, mass)
