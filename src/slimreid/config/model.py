"""Options of the model: the backbone, token reduction, fusion of modalities, heads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Literal

from slimreid.config.backbones import vit_config
from slimreid.config.token_reduction import AfterBackboneConfig, InBackboneConfig, ReductionConfig
from slimreid.config.values import check_least, check_range, check_words
from slimreid.errors import ConfigError

Reduction = Literal["none", "after_backbone", "in_backbone"]
Fusion = Literal["none", "mean", "hdm", "hdm_atmoe"]

DEFAULT_MODEL = "people-tiny"
"""The built-in model, used where no other is named."""

ORIGINAL, SLIMMED, FUSED, BOTH = "original", "slimmed", "fused", "both"
"""Names of the features: of the global tokens, of the second branch (either name), and both joined."""


@dataclass(frozen=True)
class BackboneOptions:
    """Which vision transformer, and how it is trained."""

    backbone: str = "clip_vit_b16"
    """Named size of the vision transformer; `slimreid model list` shows them."""
    pretrained: str | None = None
    """Weights of the backbone: a file, or hf://organisation/name; none = random."""
    stride: tuple[int, int] | None = None
    """Pixels between patches (down, across); none = the patch size, smaller = overlapping."""
    drop_path: float = 0.0
    """Probability of skipping a residual branch in the last block while training (stochastic depth)."""
    grad_checkpointing: bool = False
    """Recompute blocks in the backward pass, to save memory."""
    camera_embedding: bool = False
    """Learn a vector per training camera (SIE)."""
    camera_scale: float = 1.0
    """Coefficient of the camera vector."""


@dataclass(frozen=True)
class ReIDOptions:
    """What follows the backbone: token reduction, fusion and heads.

    Raises `ConfigError` naming the option when a value is unknown, out of range or without effect.
    """

    global_local: bool = False
    """Enrich each global feature by the mean of its patches."""
    reduction: Reduction = "after_backbone"
    """Token reduction: none, after the backbone, or in the backbone, where it saves computation."""
    after_backbone: AfterBackboneConfig = field(default_factory=AfterBackboneConfig)
    """With reduction after_backbone: how patches are scored, kept and merged."""
    in_backbone: InBackboneConfig = field(default_factory=InBackboneConfig)
    """With reduction in_backbone: where patches are dropped, how many, and what becomes of them."""
    fusion: Fusion = "mean"
    """Second branch, of the tokens that are left: none, their mean, or DeMo's fusion (HDM, with ATMoE)."""
    fusion_weight: float = 1.0
    """Weight of the losses of the second branch; those of the original branch have 1."""
    second_scale: float = 1.0
    """Factor on the second branch in test, which weighs it in the joint feature; see train.weigh_branches."""
    heads: Literal["direct", "split", "split_all"] = "direct"
    """Classify joint features, each modality's global one (split), or that of both branches (split_all)."""
    moe_heads: int = 4
    """Heads of the mixture of experts (hdm_atmoe)."""
    missing: Literal["skip", "zeros"] = "skip"
    """Leave absent modalities out, or compute them from zero images as DeMo did."""
    missing_fill_scale: float = 0.1
    """With missing skip, the block of an absent modality is this factor times the mean of those present."""
    neck_feature: Literal["before", "after"] = "before"
    """Test with the feature before the BNNeck, or after it."""

    def __post_init__(self) -> None:
        check_words(self, "model")
        check_least(self, 0, "fusion_weight", section="model")
        check_range("model.second_scale", self.second_scale, 0, math.inf, open_low=True, open_high=True)
        check_range("model.missing_fill_scale", self.missing_fill_scale, 0, 1)
        check_least(self, 1, "moe_heads", section="model")
        if self.reduction == "after_backbone" and self.fusion == "none":
            raise ConfigError(
                "model.reduction 'after_backbone' makes tokens for the second branch, and model.fusion is "
                "'none'; use fusion 'mean', or reduction 'none' or 'in_backbone'"
            )
        if self.heads == "split_all" and self.fusion not in ("none", "mean"):
            raise ConfigError(
                f"model.heads 'split_all' needs a second branch with a block per modality, and fusion "
                f"'{self.fusion}' mixes them; use fusion 'mean', or heads 'split'"
            )
        for name in ("after_backbone", "in_backbone"):
            changed = _changed(getattr(self, name))
            if changed and self.reduction != name:
                raise ConfigError(
                    f"model.{name}.{changed[0]} is set, but model.reduction is '{self.reduction}'; "
                    f"set it to '{name}'"
                )

    @property
    def second(self) -> str | None:
        """Name of the feature of the second branch: `slimmed`, `fused`, or None without one."""
        if self.fusion == "none":
            return None
        return SLIMMED if self.reduction != "none" and self.fusion == "mean" else FUSED


@dataclass(frozen=True)
class ModelConfig(ReIDOptions, BackboneOptions):
    """What the model is made of."""

    def __post_init__(self) -> None:
        super().__post_init__()
        vit_config(self.backbone)
        check_range("model.drop_path", self.drop_path, 0, 1, open_high=True)


def _changed(options: ReductionConfig) -> list[str]:
    """Names of the options that are not at their default."""
    return [item.name for item in fields(options) if getattr(options, item.name) != item.default]
