"""What a vision transformer is made of, and the named sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from slimreid.config.values import check_least, check_range, check_word, check_words
from slimreid.errors import ConfigError

Resampling = Literal["bicubic", "bicubic_antialias", "bilinear"]


@dataclass(frozen=True)
class ViTConfig:
    """Shape and style of a vision transformer; the image size is given separately.

    Raises `ConfigError` naming the field when a value is out of range or contradicts another.
    """

    width: int
    """Channels of every token inside the blocks."""
    depth: int
    """Number of transformer blocks."""
    heads: int
    """Attention heads per block; must divide the width."""
    mlp_width: int
    """Hidden channels of the MLP (for swiglu: channels after the gate)."""
    patch_size: int = 16
    """Side of the square patches in pixels."""
    stride: tuple[int, int] | None = None
    """Pixels between patches (down, across); below patch_size they overlap; None = patch_size."""
    conv_bias: bool = True
    """Whether the patch embedding has a bias (CLIP: no)."""
    class_token: bool = True
    """Whether a class token leads the sequence; without it the global feature is the mean of the patches."""
    registers: int = 0
    """Number of register tokens between class token and patches; they carry no position."""
    pre_norm: bool = False
    """Whether a LayerNorm stands in front of the first block (CLIP's ln_pre)."""
    activation: Literal["gelu", "quick_gelu", "swiglu"] = "gelu"
    """MLP: gelu (exact), quick_gelu (x·sigmoid(1.702x)) or swiglu (silu(gate)·up)."""
    layer_scale: float | None = None
    """Initial value of the learned gain per channel on each residual branch; None = no such gain."""
    qkv_bias: Literal["all", "no_key", "none"] = "all"
    """Bias of the joint query-key-value projection: all, no_key (DINOv3) or none."""
    positions: Literal["learned", "rotary"] = "learned"
    """learned (one vector per grid cell, resampled for other grids) or rotary (DINOv3)."""
    position_resampling: Resampling = "bicubic"
    """How learned positions are brought to another grid: bicubic, bicubic_antialias or bilinear (DeMo)."""
    rotary_base: float = 100.0
    """Base period of the rotary frequencies."""
    norm_eps: float = 1e-6
    """Epsilon of all LayerNorms."""
    projection: int | None = None
    """Output channels of a bias-free projection of all tokens after the final norm; None = no projection."""
    drop_path: float = 0.0
    """Probability of skipping a residual branch in the last block while training; grows linearly from 0."""
    grad_checkpointing: bool = False
    """Whether blocks are recomputed in the backward pass, to save memory while training."""
    cameras: int = 0
    """Number of cameras with a learned embedding (SIE); 0 = no camera embedding."""
    camera_style: Literal["class", "all"] = "class"
    """Where the camera embedding is added: to the class token (CLIP) or to all tokens (ImageNet ViT)."""
    camera_scale: float = 1.0
    """Coefficient of the camera embedding."""

    def __post_init__(self) -> None:
        if self.stride is not None:
            object.__setattr__(self, "stride", tuple(self.stride))
        check_words(self, "ViTConfig")
        check_least(
            self, 1, "width", "depth", "heads", "mlp_width", "patch_size", "projection", section="ViTConfig"
        )
        check_least(self, 0, "registers", "cameras", section="ViTConfig")
        check_range("ViTConfig.drop_path", self.drop_path, 0, 1, open_high=True)
        check_range("ViTConfig.norm_eps", self.norm_eps, 0, math.inf, open_low=True)
        if self.width % self.heads:
            raise ConfigError(f"ViTConfig.heads: {self.heads} does not divide the width {self.width}")
        if self.positions == "rotary":
            check_range("ViTConfig.rotary_base", self.rotary_base, 1, math.inf, open_low=True)
            if self.head_width % 4:
                raise ConfigError(f"ViTConfig.heads: {self.heads}: rotary needs width/heads divisible by 4")
        if len(self.steps) != 2 or not all(1 <= step <= self.patch_size for step in self.steps):
            raise ConfigError(
                f"ViTConfig.stride: {self.stride} must be two numbers in 1 … patch_size {self.patch_size}"
            )
        if self.cameras and self.camera_style == "class" and not self.class_token:
            raise ConfigError("ViTConfig.camera_style: 'class' needs class_token; use camera_style: all")

    @property
    def head_width(self) -> int:
        """Channels per attention head."""
        return self.width // self.heads

    @property
    def steps(self) -> tuple[int, int]:
        """Step between patches (down, across), overlapping or not."""
        return self.stride or (self.patch_size, self.patch_size)

    @property
    def prefix(self) -> int:
        """Tokens in front of the patches: class token and registers."""
        return int(self.class_token) + self.registers

    @property
    def out_width(self) -> int:
        """Channels of the output patches and global feature."""
        return self.projection or self.width

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Patches (down, across) of an image (height, width); raises `ConfigError` when it is too small.

        Pixels at the lower and right edge that do not fill a patch are left out, as a convolution does.
        """
        (height, width), (down, across) = image_size, self.steps
        if min(height, width) < self.patch_size:
            raise ConfigError(f"image {height}×{width} is smaller than one patch of {self.patch_size} pixels")
        return (height - self.patch_size) // down + 1, (width - self.patch_size) // across + 1


_VIT_B16 = ViTConfig(width=768, depth=12, heads=12, mlp_width=3072, camera_style="all")


def _small(base: ViTConfig) -> ViTConfig:
    return replace(base, width=384, heads=6, mlp_width=1536)


_DINOV2_B14 = replace(_VIT_B16, patch_size=14, layer_scale=1.0)
_DINOV2_B14_REG = replace(_DINOV2_B14, registers=4, position_resampling="bicubic_antialias")
_DINOV3_B16 = replace(
    _VIT_B16, registers=4, layer_scale=1.0, qkv_bias="no_key", positions="rotary", norm_eps=1e-5
)

SIZES: dict[str, ViTConfig] = {
    "clip_vit_b16": replace(
        _VIT_B16,
        conv_bias=False,
        pre_norm=True,
        activation="quick_gelu",
        norm_eps=1e-5,
        projection=512,
        camera_style="class",
    ),
    "vit_b16": _VIT_B16,
    "vit_s16": _small(_VIT_B16),
    "vit_tiny": replace(_VIT_B16, width=192, heads=3, mlp_width=768),
    "dinov2_b14": _DINOV2_B14,
    "dinov2_s14": _small(_DINOV2_B14),
    "dinov2_b14_reg": _DINOV2_B14_REG,
    "dinov2_s14_reg": _small(_DINOV2_B14_REG),
    "dinov3_b16": _DINOV3_B16,
    "dinov3_s16": _small(_DINOV3_B16),
    "nano": replace(_VIT_B16, width=96, depth=4, heads=3, mlp_width=288, patch_size=8),
}


def vit_config(name: str) -> ViTConfig:
    """The configuration of a named size; raises `ConfigError` with the nearest known name."""
    check_word("backbone", name, SIZES)
    return SIZES[name]
