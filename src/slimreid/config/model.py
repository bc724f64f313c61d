"""Options of the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from slimreid.errors import ConfigError
from slimreid.models.output import second_branch
from slimreid.models.sizes import vit_config
from slimreid.slimming.presets import SlimmingOptions


@dataclass(frozen=True)
class ModelConfig:
    """What the model is made of."""

    backbone: str = "clip_vit_b16"
    """Named size of the vision transformer; `slimreid model list` shows them."""
    pretrained: str | None = None
    """Weights of the backbone: a file, or hf://organisation/name; none = random."""
    stride: tuple[int, int] | None = None
    """Pixels between patches (down, across); none = the patch size, smaller = overlapping."""
    drop_path: float = 0.0
    """Probability of skipping a residual branch in the last block while training."""
    checkpointing: bool = False
    """Recompute blocks in the backward pass, to save memory."""
    camera_embedding: bool = False
    """Learn a vector per training camera (SIE)."""
    camera_scale: float = 1.0
    """Coefficient of the camera vector."""
    global_local: bool = False
    """Enrich each global feature by the mean of its patches."""
    fusion: Literal["none", "mean", "sdtps", "hdm", "hdm_atmoe"] = "sdtps"
    """Second branch: none, the mean of all patches, slimmed tokens, or DeMo's fusion (with experts)."""
    original_weight: float = 1.0
    """Weight of the losses of the original branch."""
    fusion_weight: float = 1.0
    """Weight of the losses of the second branch."""
    heads: Literal["direct", "split"] = "direct"
    """Classify the joint feature, or each modality's on its own."""
    moe_heads: int = 4
    """Heads of the mixture of experts."""
    missing: Literal["skip", "zeros"] = "skip"
    """Leave absent modalities out, or compute them from zero images as earlier code did."""
    absent_weight: float = 0.1
    """With `missing: skip`, blocks of absent modalities are so many times the mean of those present; small,
    so that what two samples have in common decides."""
    neck_feature: Literal["before", "after"] = "before"
    """Test with the feature before the BNNeck, or after it."""
    shared_slimmer: bool = False
    """One set of slimming parameters for all modalities instead of one each."""
    slimming: SlimmingOptions = field(default_factory=SlimmingOptions)
    """How patches are scored, kept and merged (fusion sdtps)."""

    def __post_init__(self) -> None:
        vit_config(self.backbone)
        if not 0 <= self.drop_path < 1:
            raise ConfigError(f"model.drop_path must be in [0, 1), not {self.drop_path}")
        for name in ("original_weight", "fusion_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"model.{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.absent_weight <= 1:
            raise ConfigError(f"model.absent_weight must be in [0, 1], not {self.absent_weight}")
        if self.original_weight == 0 and (self.fusion == "none" or self.fusion_weight == 0):
            raise ConfigError(
                "model.original_weight is 0 and there is no second branch with a model.fusion_weight over 0: "
                "nothing would be learned"
            )
        if self.moe_heads < 1:
            raise ConfigError(f"model.moe_heads must be at least 1, not {self.moe_heads}")
        if self.slimming.merge == "dual":
            raise ConfigError("model.slimming.merge 'dual' needs two texts as guides; use 'single' or 'none'")
        if self.fusion != "sdtps" and (self.slimming != SlimmingOptions() or self.shared_slimmer):
            raise ConfigError(f"model.slimming is set, but model.fusion is '{self.fusion}'; use 'sdtps'")

    @property
    def second(self) -> str | None:
        """Name of the feature of the second branch; None without one."""
        return second_branch(self.fusion)
