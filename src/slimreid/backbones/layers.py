"""The parts of a transformer: positions, learned (resampled by grid) or rotary; attention; blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.config.backbones import Resampling, ViTConfig
from slimreid.errors import ModelError

Rotary = tuple[Tensor, Tensor]


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
    if how not in get_args(Resampling):
        raise ModelError(f"cannot resample positions by '{how}' (known: {', '.join(get_args(Resampling))})")
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


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's approximation of GELU, x·sigmoid(1.702x)."""
    return x * torch.sigmoid(1.702 * x)


def quick_gelu_(x: Tensor) -> Tensor:
    """The same in place."""
    return x.mul_((1.702 * x).sigmoid_())


def gelu_(x: Tensor) -> Tensor:
    """The exact GELU in place."""
    out: Tensor = torch.ops.aten.gelu_(x)
    return out


def swiglu(x: Tensor) -> Tensor:
    """Gate the second half of the channels by the first: (..., 2C) -> (..., C)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "quick_gelu": quick_gelu,
    "swiglu": swiglu,
}
# Without gradients nothing else needs the hidden layer, the largest tensor of a block, so it is reused.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu_, "quick_gelu": quick_gelu_}


def drop_path(x: Tensor, probability: float, training: bool) -> Tensor:
    """Zero a residual branch (B, T, C) for whole samples while training, scaling up the others."""
    if probability == 0 or not training:
        return x
    keep = 1 - probability
    return x * x.new_empty(len(x), 1, 1).bernoulli_(keep).div_(keep)


class Attention(nn.Module):
    """Multi-head self-attention with one joint projection and the fused kernel: (B, T, C) -> (B, T, C)."""

    key_mask: Tensor | None

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.qkv_bias != "none")
        self.proj = nn.Linear(config.width, config.width)
        mask = None
        if config.qkv_bias == "no_key":
            # One matrix product for all three, the key's share of the bias held at 0.
            mask = torch.ones(3, config.width).index_fill_(0, torch.tensor(1), 0.0).flatten()
        self.register_buffer("key_mask", mask, persistent=False)

    def forward(
        self,
        x: Tensor,
        rotary: Rotary | None = None,
        key_bias: Tensor | None = None,
        class_attention: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend among all tokens; `rotary` is the table of `rotary_table`, or None.

        `key_bias` (B, T) is added to the logits of every query and head. With `class_attention`, also the
        first token's attention to all tokens, the mean over heads, (B, T); it costs one row per head.
        """
        B, T, C = x.shape
        bias = self.qkv.bias if self.key_mask is None else self.qkv.bias * self.key_mask
        qkv = F.linear(x, self.qkv.weight, bias)
        qkv = qkv.view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        if rotary is None:
            q, k, v = qkv.unbind(0)
        else:
            (q, k), v = rotate(qkv[:2], *rotary).unbind(0), qkv[2]
        mask = None if key_bias is None else key_bias[:, None, None].to(q.dtype)
        x = attend(q, k, v, mask)
        out: Tensor = self.proj(x.transpose(1, 2).reshape(B, T, C))
        return out, first_token_attention(q, k) if class_attention else None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention of (B, H, T, D) each, `mask` added to the logits: (B, H, T, D).

    The fused kernel, except for gradients in bf16 on a CPU, where its backward pass is several times slower
    than that of plain products (benchmarks/attention.py).
    """
    learns = torch.is_grad_enabled() and q.requires_grad
    if not (learns and q.device.type == "cpu" and q.dtype == torch.bfloat16):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    logits: Tensor = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (logits if mask is None else logits + mask).softmax(-1) @ v


def first_token_attention(q: Tensor, k: Tensor) -> Tensor:
    """Attention of the first token, the mean over heads: two of (B, H, T, D) -> (B, T), at least float32."""
    logits: Tensor = (q[:, :, :1] @ k.transpose(-1, -2))[:, :, 0]  # (B, H, T)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) * q.shape[-1] ** -0.5
    return logits.softmax(-1).mean(1)


class MLP(nn.Module):
    """Two linear layers with an activation between: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        doubled = 2 if config.activation == "swiglu" else 1  # gate and up in one matrix product
        self.fc1 = nn.Linear(config.width, doubled * config.mlp_width)
        self.fc2 = nn.Linear(config.mlp_width, config.width)
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.in_place = IN_PLACE.get(config.activation, self.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to every token on its own."""
        activation = self.activation if torch.is_grad_enabled() else self.in_place
        out: Tensor = self.fc2(activation(self.fc1(x)))
        return out


class Block(nn.Module):
    """Pre-norm transformer block, each branch with optional LayerScale and drop path."""

    scale1: nn.Parameter | None
    scale2: nn.Parameter | None

    def __init__(self, config: ViTConfig, drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = MLP(config)
        for name in ("scale1", "scale2"):
            gain = None
            if config.layer_scale is not None:
                gain = nn.Parameter(torch.full((config.width,), config.layer_scale))
            self.register_parameter(name, gain)
        self.drop = drop

    def forward(
        self,
        x: Tensor,
        rotary: Rotary | None = None,
        key_bias: Tensor | None = None,
        class_attention: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens (B, T, C) -> (B, T, C), and what `Attention` has seen of the first token if asked."""
        y, attention = self.attn(self.norm1(x), rotary, key_bias, class_attention)
        x = add(x, self._branch(y, self.scale1))
        return add(x, self._branch(self.mlp(self.norm2(x)), self.scale2)), attention

    def _branch(self, y: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            y = y * scale
        return drop_path(y, self.drop, self.training)


def add(x: Tensor, branch: Tensor) -> Tensor:
    """x + branch, in the memory of the branch where no gradient needs it."""
    return x + branch if torch.is_grad_enabled() or x.dtype != branch.dtype else branch.add_(x)
