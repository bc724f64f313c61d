"""What a model says of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from slimreid.token_reduction.reduced_tokens import ReducedTokens


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
