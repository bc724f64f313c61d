"""What a model says of a batch, and the names of its features."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from slimreid.slimming import Slimmed

ORIGINAL, SLIMMED, FUSED, BOTH = "original", "slimmed", "fused", "both"


def second_branch(fusion: str) -> str | None:
    """Name of the second branch that a kind of fusion makes: `slimmed`, `fused`, or None for `none`."""
    return {"none": None, "sdtps": SLIMMED}.get(fusion, FUSED)


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
    """Ratio loss of the slimming, if asked for."""
    slimmed: Slimmed | None = None
    """On request: tokens, choices of patches (one per stage inside the backbone) and merge weights, each
    (B, M, ...)."""
    present: Tensor | None = None
    """(B, M) bool: what was computed; None = everything."""
