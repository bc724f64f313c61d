"""Necks and heads: from tokens and globals to features and class scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.models.layers import quick_gelu


class GlobalLocal(nn.Module):
    """Global feature enriched by the mean of its patches: QuickGELU(Linear(LayerNorm([global ; mean])))."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2 * dim)
        self.reduce = nn.Linear(2 * dim, dim)

    def forward(self, global_: Tensor, patches: Tensor) -> Tensor:
        """global_ (R, C), patches (R, N, C) -> (R, C)."""
        joined = torch.cat([global_, patches.mean(dim=1)], dim=-1)
        out: Tensor = quick_gelu(self.reduce(self.norm(joined)))
        return out


class BNNeckHead(nn.Module):
    """BatchNorm with a frozen bias, then a bias-free classifier."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.neck = nn.BatchNorm1d(dim)
        self.neck.bias.requires_grad_(False)
        self.classifier = nn.Linear(dim, num_classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """features (B, D) -> class scores (B, classes); rows outside `valid` (B,) are left out and zero."""
        if valid is None or bool(valid.all()):
            scores: Tensor = self.classifier(self.neck(features))
            return scores
        some: Tensor = self.classifier(self.neck(features[valid]))
        return some.new_zeros(len(features), some.shape[1]).index_put((valid,), some)


def fill_absent(blocks: Tensor, present: Tensor) -> Tensor:
    """Replace absent blocks by the mean of the present ones: blocks (B, S, C), present (B, S) bool.

    So an embedding has the same size whatever is missing, and samples that share no modality can
    still be compared.
    """
    mask = present[..., None].to(blocks.dtype)  # (B, S, 1)
    mean = (blocks * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return torch.where(present[..., None], blocks, mean)


def join_blocks(blocks: Tensor, present: Tensor | None, normalise: bool) -> Tensor:
    """Blocks (B, S, C) to one feature (B, S·C), filled where `present` (B, S) is false."""
    if normalise:
        blocks = F.normalize(blocks, dim=-1)
    if present is not None:
        blocks = fill_absent(blocks, present)
    return blocks.flatten(1)
