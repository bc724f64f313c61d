"""Necks and heads: from tokens and globals to features and class scores, and the output of a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.backbones.layers import quick_gelu
from slimreid.token_reduction.merge import ReducedTokens


class GlobalLocal(nn.Module):
    """Global feature enriched by the mean of its patches: QuickGELU(Linear(LayerNorm([global ; mean])))."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2 * dim)
        self.reduce = nn.Linear(2 * dim, dim)

    def forward(self, global_: Tensor, mean: Tensor) -> Tensor:
        """global_ (R, C), mean (R, C) of the patches -> (R, C)."""
        out: Tensor = quick_gelu(self.reduce(self.norm(torch.cat([global_, mean], dim=-1))))
        return out


class BNNeckHead(nn.Module):
    """BatchNorm with a frozen bias, then a bias-free classifier."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.neck = nn.BatchNorm1d(dim)
        self.neck.bias.requires_grad_(False)
        self.classifier = nn.Linear(dim, num_classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, features: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """features (B, D) -> the same after the BatchNorm, and class scores (B, classes).

        Rows outside `valid` (B,) are left out of the BatchNorm and come back as zeros.
        """
        if valid is None or bool(valid.all()):
            normed: Tensor = self.neck(features)
            return normed, self.classifier(normed)
        some = self.neck(features[valid])
        return _spread(some, valid), _spread(self.classifier(some), valid)


class HeadSet(nn.ModuleDict):
    """A head per feature: of a branch (`original`), or of one modality of it (`original.rgb`)."""

    def __init__(self, widths: Mapping[str, int], num_classes: int) -> None:
        # A dot is not allowed in module names.
        super().__init__({name.replace(".", "_"): BNNeckHead(w, num_classes) for name, w in widths.items()})
        self.names = tuple(widths)
        """What the heads see; modalities in the order of the blocks."""

    def head(self, name: str) -> BNNeckHead:
        """The head of a feature."""
        return cast(BNNeckHead, self[name.replace(".", "_")])

    def after_necks(
        self, branch: str, blocks: Tensor, present: Tensor | None, missing_fill_scale: float = 1.0
    ) -> Tensor:
        """Blocks (B, S, D) after the one BNNeck of a branch, or after that of each of its S modalities."""
        if branch in self.names:
            filled = join_blocks(blocks, present, normalise=False, missing_fill_scale=missing_fill_scale)
            joined: Tensor = self.head(branch).neck(filled)
            return joined.view_as(blocks)
        necks = [self.head(name).neck for name in self.names if name.startswith(f"{branch}.")]
        return torch.stack([neck(blocks[:, m]) for m, neck in enumerate(necks)], dim=1)


def _spread(rows: Tensor, valid: Tensor) -> Tensor:
    """Rows (n, D) at the n places where `valid` (B,) is true, zeros elsewhere: (B, D)."""
    return rows.new_zeros(len(valid), rows.shape[1]).index_put((valid,), rows)


def fill_absent(blocks: Tensor, present: Tensor, weight: float = 1.0) -> Tensor:
    """Replace absent blocks by `weight` times the mean of the present ones.

    blocks (B, S, C), present (B, S) bool -> (B, S, C). So an embedding has the same size whatever is
    missing, and samples that share no modality can still be compared; with a small weight, what two
    samples have in common decides where they have something.
    """
    mask = present[..., None].to(blocks.dtype)  # (B, S, 1)
    mean = (blocks * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return torch.where(present[..., None], blocks, weight * mean)


def join_blocks(
    blocks: Tensor, present: Tensor | None, normalise: bool, missing_fill_scale: float = 1.0
) -> Tensor:
    """Blocks (B, S, C) to one feature (B, S·C), filled where `present` (B, S) is false."""
    if normalise:
        blocks = F.normalize(blocks, dim=-1)
    if present is not None:
        blocks = fill_absent(blocks, present, missing_fill_scale)
    return blocks.flatten(1)


@dataclass
class ReIDOutput:
    """What the model says of a batch of B samples."""

    features: dict[str, Tensor]
    """`original` (B, M·C), then `slimmed` or `fused`, then `both`;
    before any BNNeck, except in test with `neck_feature="after"`."""
    logits: dict[str, Tensor] = field(default_factory=dict)
    """Class scores (B, classes) per head, while training: `original` or `original.<modality>`, ..."""
    head_features: dict[str, Tensor] = field(default_factory=dict)
    """The feature (B, D) that each head sees, for metric losses."""
    neck_features: dict[str, Tensor] = field(default_factory=dict)
    """The same after the BNNeck of the head, for metric losses there."""
    valid: dict[str, Tensor] = field(default_factory=dict)
    """(B,) bool: the rows that count, for heads of a modality that some samples lack."""
    ratio_loss: Tensor | None = None
    """Weighted ratio loss of the token reduction, if asked for."""
    reduced: ReducedTokens | None = None
    """On request: tokens, selections of patches (one per stage in the backbone) and merge weights, each
    (B, M, ...)."""
    present: Tensor | None = None
    """(B, M) bool: what was computed; None = everything."""
