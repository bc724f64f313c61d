"""What a vision transformer is made of, and the named sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slimreid.errors import ConfigError, did_you_mean

ACTIVATIONS = ("gelu", "quick_gelu", "swiglu")
POSITIONS = ("learned", "rotary")
RESAMPLING = ("bicubic", "bicubic_antialias", "bilinear")
QKV_BIASES = ("all", "no_key", "none")
CAMERA_STYLES = ("class", "all")


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
    activation: str = "gelu"
    """MLP: gelu (exact), quick_gelu (x·sigmoid(1.702x)) or swiglu (silu(gate)·up)."""
    layer_scale: float | None = None
    """Initial value of the learned gain per channel on each residual branch; None = no such gain."""
    qkv_bias: str = "all"
    """Bias of the joint query-key-value projection: all, no_key (DINOv3) or none."""
    positions: str = "learned"
    """learned (one vector per grid cell, resampled for other grids) or rotary (DINOv3)."""
    position_resampling: str = "bicubic"
    """How learned positions are brought to another grid: bicubic, bicubic_antialias or bilinear (DeMo)."""
    rotary_base: float = 100.0
    """Base period of the rotary frequencies."""
    norm_eps: float = 1e-6
    """Epsilon of all LayerNorms."""
    final_norm: bool = True
    """Whether a LayerNorm over all tokens follows the last block."""
    projection: int | None = None
    """Output channels of a bias-free projection of all tokens after the final norm; None = no projection."""
    drop_path: float = 0.0
    """Probability of skipping a residual branch in the last block while training; grows linearly from 0."""
    grad_checkpointing: bool = False
    """Whether blocks are recomputed in the backward pass, to save memory while training."""
    cameras: int = 0
    """Number of cameras with a learned embedding (SIE); 0 = no camera embedding."""
    camera_style: str = "class"
    """Where the camera embedding is added: to the class token (CLIP) or to all tokens (ImageNet ViT)."""
    camera_scale: float = 1.0
    """Coefficient of the camera embedding."""

    def __post_init__(self) -> None:
        if self.stride is not None:
            object.__setattr__(self, "stride", tuple(self.stride))
        for name in ("width", "depth", "heads", "mlp_width", "patch_size"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("registers", "cameras"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "must not be negative")
        for name, known in (
            ("activation", ACTIVATIONS),
            ("positions", POSITIONS),
            ("position_resampling", RESAMPLING),
            ("qkv_bias", QKV_BIASES),
            ("camera_style", CAMERA_STYLES),
        ):
            _require(
                getattr(self, name) in known, name, getattr(self, name), f"is none of {', '.join(known)}"
            )
        _require(self.width % self.heads == 0, "heads", self.heads, f"does not divide the width {self.width}")
        if self.positions == "rotary":
            _require(self.head_width % 4 == 0, "heads", self.heads, "rotary needs width/heads divisible by 4")
            _require(self.rotary_base > 1, "rotary_base", self.rotary_base, "must be above 1")
        strides = self.steps
        valid = len(strides) == 2 and all(1 <= s <= self.patch_size for s in strides)
        _require(valid, "stride", self.stride, f"must be two numbers in 1 … patch_size {self.patch_size}")
        _require(0 <= self.drop_path < 1, "drop_path", self.drop_path, "must be in [0, 1)")
        _require(self.norm_eps > 0, "norm_eps", self.norm_eps, "must be positive")
        _require(
            self.projection is None or self.projection >= 1, "projection", self.projection, "is too small"
        )
        if self.cameras and self.camera_style == "class":
            _require(self.class_token, "camera_style", "class", "needs class_token; use camera_style: all")

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


def _require(valid: bool, name: str, value: object, why: str) -> None:
    if not valid:
        raise ConfigError(f"ViT option {name}: {value!r} {why}")


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
    if name not in SIZES:
        hint = did_you_mean(name, SIZES)
        raise ConfigError(f"unknown backbone '{name}'{hint} (known: {', '.join(SIZES)})")
    return SIZES[name]
