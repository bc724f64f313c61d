"""The parts of a transformer block."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.backbones.positions import rotate
from slimreid.config.backbones import ViTConfig

Rotary = tuple[Tensor, Tensor]


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
        if (
            config.qkv_bias == "no_key"
        ):  # one matrix product for all three, the key's share of the bias held at 0
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
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out: Tensor = self.proj(x.transpose(1, 2).reshape(B, T, C))
        return out, first_token_attention(q, k) if class_attention else None


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
