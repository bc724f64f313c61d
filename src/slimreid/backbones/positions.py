"""Where a patch is: learned positions resampled by grid, and rotary positions from coordinates."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.config.backbones import RESAMPLING
from slimreid.errors import ModelError


def resample_positions(
    table: Tensor, source: tuple[int, int], target: tuple[int, int], how: str = "bicubic"
) -> Tensor:
    """Bring learned positions (1, P + h·w, C) from grid `source` = (h, w) to `target`: (1, P + h'·w', C).

    The first P entries (class token) stay as they are. It is the grid that counts, not the number of
    patches: 16×8 and 8×16 differ. `how` is bicubic, bicubic_antialias or bilinear, computed in float32.
    Raises `ModelError` when the table is too short for the source grid or `how` is not known.
    """
    _, count, C = table.shape
    h, w = source
    if count < h * w:
        raise ModelError(f"{count} positions cannot hold a grid of {h}×{w} patches")
    if how not in RESAMPLING:
        raise ModelError(f"cannot resample positions by '{how}' (known: {', '.join(RESAMPLING)})")
    if source == target:
        return table
    prefix, cells = table[:, : count - h * w], table[:, count - h * w :]
    image = cells.float().reshape(1, h, w, C).permute(0, 3, 1, 2)
    mode, _, antialias = how.partition("_")
    image = F.interpolate(image, size=target, mode=mode, align_corners=False, antialias=bool(antialias))
    cells = image.permute(0, 2, 3, 1).reshape(1, target[0] * target[1], C)
    return torch.cat([prefix, cells.to(table.dtype)], dim=1)


def patch_coordinates(grid: tuple[int, int], device: torch.device | None = None) -> Tensor:
    """Centres (y, x) of the patches of a grid, each axis scaled to [−1, 1]: (1, h·w, 2), float32."""
    y, x = ((torch.arange(n, device=device) + 0.5) * (2 / n) - 1 for n in grid)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).view(1, grid[0] * grid[1], 2)


def mean_coordinates(coordinates: Tensor, weights: Tensor) -> Tensor:
    """Position of tokens that stand for several patches: the weighted mean of the patches' coordinates.

    `coordinates` (B or 1, N, 2), non-negative `weights` (B, n, N) -> (B, n, 2). No gradient flows from
    a position into the weights: they are learned through what the token holds, not where it stands.
    """
    weights = weights.detach().to(coordinates.dtype)
    total = weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    with torch.autocast(weights.device.type, enabled=False):  # half precision would blur neighbouring patches
        return (weights / total) @ coordinates


def rotary_table(
    coordinates: Tensor, prefix: int, head_width: int, base: float = 100.0
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotation of every token, two of (B or 1, 1, prefix + N, head_width/2).

    `coordinates` (B or 1, N, 2) may be any points, also between patches, so kept, permuted and merged
    tokens all have a rotation. The first half of the angles turns with y, the second with x. The
    `prefix` tokens (class, registers) are not rotated. Computed in float32 whatever the model's dtype.
    """
    steps = torch.arange(0, 1, 4 / head_width, dtype=torch.float32, device=coordinates.device)
    angles = (2 * math.pi * coordinates.float())[..., None] * base**-steps  # (B or 1, N, 2, head_width/4)
    angles = F.pad(angles.flatten(2), (0, 0, prefix, 0))[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the channel pairs (i, i + D/2) of x (..., T, D) by the table of `rotary_table`."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
