"""Dropped patches join the kept ones that are most like them, so that nothing is lost but detail."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def likeness(patches: Tensor) -> Tensor:
    """Cosines between all patches of an image: (B, n, C) -> (B, n, n), without gradient.

    Each patch is normalised and the mean patch subtracted first: deep in a backbone, what all patches of an
    image share is the largest part of them and would make them all alike. In at least float32, also under
    autocast, since which patch is nearest hangs on small differences.
    """
    with torch.autocast(patches.device.type, enabled=False):
        patches = patches.detach().to(torch.promote_types(patches.dtype, torch.float32))
        normed = F.layer_norm(patches, patches.shape[-1:])
        unit = F.normalize(normed - normed.mean(1, keepdim=True), dim=-1)
        return torch.bmm(unit, unit.transpose(1, 2))


def redundancy(alike: Tensor, score: Tensor) -> Tensor:
    """How much each patch is like one that matters more: alike (B, n, n), score (B, n) -> (B, n) in [0, 1].

    Of two patches that are alike, only the lower one is redundant (the later one on ties), so the best of
    several equal patches is never dropped before the others; the best patch of an image has 0.
    """
    n = score.shape[1]
    number = torch.arange(n, device=score.device)
    here, there = score[:, :, None], score[:, None, :]
    above = (there > here) | ((there == here) & (number[None, :] < number[:, None]))
    return alike.masked_fill(~above, 0.0).amax(-1)


def joining_weights(alike: Tensor, index: Tensor, size: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weights by which all n patches become the K kept ones, and how many patches each then stands for.

    alike (B, n, n), index (B, K) of the kept patches, size (B, n) of patches that stand for several already
    -> weights (B, K, n), each row summing to 1, and sizes (B, K). Every dropped patch joins the kept one most
    like it (the first one on ties), and counts by its size.
    """
    B, n, _ = alike.shape
    K = index.shape[1]
    wide = index[:, None].expand(-1, n, -1)
    joins = alike.gather(2, wide).argmax(-1)  # (B, n)
    itself = torch.arange(K, device=index.device).expand(B, K)
    joins = joins.scatter(1, index, itself)
    size = alike.new_ones(B, n) if size is None else size.to(alike.dtype)
    weights = alike.new_zeros(B, K, n).scatter(1, joins[:, None], size[:, None])
    sizes = weights.sum(-1)
    return weights / sizes[..., None], sizes
