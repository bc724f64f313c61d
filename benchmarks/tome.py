"""Token merging by bipartite matching (ToMe) for our ViT: a baseline, kept out of the library.

In every block, between attention and MLP, the patch tokens are split alternately into two sets; each token
of the first proposes its most similar one of the second, and the `r` best proposals are carried out:
the pair becomes its mean, weighted by how many patches each stands for (its size). The logits of
attention get log(size) of their key, so that a merged token counts like all its patches. Class and register
tokens are left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.backbones.layers import Attention, Block, Rotary, add, rotate
from slimreid.backbones.tokens import TokenState
from slimreid.backbones.vit import ViT, ViTOutput
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel

Metric = Literal["keys", "tokens"]


@dataclass(frozen=True)
class Matching:
    """Which tokens of the first set (every other one, from the first) join which of the second."""

    joins: Tensor
    """(B, r): places in the first set."""
    into: Tensor
    """(B, r): places in the second set."""
    stays: Tensor
    """(B, first − r): the other places of the first set, in their order."""


def match(metric: Tensor, r: int) -> Matching:
    """The r most similar pairs by cosine of metric (B, n, D); at most half of the tokens can join."""
    unit = F.normalize(metric, dim=-1)
    similarity = unit[:, ::2] @ unit[:, 1::2].transpose(1, 2)  # (B, first, second)
    best, partner = similarity.max(-1)
    order = best.argsort(dim=-1, descending=True, stable=True)
    r = min(r, similarity.shape[2])
    joins = order[:, :r]
    return Matching(joins, partner.gather(1, joins), order[:, r:].sort(-1).values)


def merge(values: Tensor, found: Matching) -> Tensor:
    """Sums of values (B, n, C) over joined tokens, the first set's others first: (B, n − r, C)."""
    first, second = values[:, ::2], values[:, 1::2]
    C = values.shape[-1]

    def wide(index: Tensor) -> Tensor:
        return index[..., None].expand(-1, -1, C)

    joined = second.scatter_add(1, wide(found.into), first.gather(1, wide(found.joins)))
    return torch.cat([first.gather(1, wide(found.stays)), joined], dim=1)


class ToMe:
    """What the blocks of one forward pass share: how many tokens join, and what the tokens stand for."""

    def __init__(self, r: int, metric: Metric = "keys") -> None:
        if r < 1 or metric not in ("keys", "tokens"):
            raise ConfigError(
                f"token merging needs r of at least 1 and keys or tokens, not {r} and '{metric}'"
            )
        self.r, self.metric = r, metric
        self.size: Tensor | None = None
        """(B, n, 1): patches behind each token; None = one each."""
        self.positions: Tensor | None = None

    def between(self, block: int, state: TokenState) -> TokenState:
        """Tell the backbone where the tokens that the last block has merged are, and how much they count."""
        if block == 0:
            self.size, self.positions = None, state.positions
            return state
        if self.size is None:
            return state
        assert self.positions is not None
        bias = F.pad(self.size[..., 0].log(), (state.prefix, 0))
        index = torch.full(self.size.shape[:2], -1, dtype=torch.int64, device=bias.device)
        return replace(state, positions=self.positions, key_bias=bias, index=index)

    def merge(self, x: Tensor, metric: Tensor, prefix: int) -> Tensor:
        """Join r pairs of the tokens x (B, T, C) behind the prefix, by metric (B, T, D)."""
        patches = x[:, prefix:]
        B, n, _ = patches.shape
        if n < 2:
            return x
        found = match(metric[:, prefix:].detach(), self.r)
        old = patches.new_ones(B, n, 1) if self.size is None else self.size
        assert self.positions is not None
        places = self.positions.expand(B, -1, -1) * old
        summed = merge(torch.cat([patches * old, old], dim=2), found)
        self.size = summed[..., -1:].detach()
        self.positions = merge(places, found) / self.size
        return torch.cat([x[:, :prefix], summed[..., :-1] / self.size], dim=1)


def attend(
    attention: Attention, x: Tensor, rotary: Rotary | None, key_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What `Attention` gives (B, T, C), and the mean over heads of the keys, not rotated, (B, T, C/heads)."""
    B, T, C = x.shape
    heads = attention.heads
    bias = attention.qkv.bias
    if attention.key_mask is not None:
        bias = bias * attention.key_mask
    qkv = F.linear(x, attention.qkv.weight, bias).view(B, T, 3, heads, C // heads).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    keys = k.mean(1)
    if rotary is not None:
        q, k = rotate(qkv[:2], *rotary).unbind(0)
    mask = None if key_bias is None else key_bias[:, None, None].to(q.dtype)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attention.proj(out.transpose(1, 2).reshape(B, T, C)), keys


class MergingBlock(Block):
    """A block that merges tokens between attention and MLP; a `Block` becomes one by its class."""

    tome: ToMe
    prefix: int

    def forward(
        self, x: Tensor, rotary: Rotary | None = None, key_bias: Tensor | None = None, watch: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens (B, T, C) -> (B, T − r, C); nothing is watched."""
        y, keys = attend(self.attn, self.norm1(x), rotary, key_bias)
        x = add(x, self._branch(y, self.scale1))
        x = self.tome.merge(x, keys if self.tome.metric == "keys" else x, self.prefix)
        return add(x, self._branch(self.mlp(self.norm2(x)), self.scale2)), None


class MergingViT(ViT):
    """A ViT with merging blocks; a `ViT` becomes one by its class."""

    tome: ToMe
    weighted: bool

    def forward(self, images: Tensor, cameras: Tensor | None = None, *_: Any, **__: Any) -> ViTOutput:
        """Encode images as `ViT` does, with merging in every block."""
        return super().forward(images, cameras, self.tome.between)

    def _output(self, x: Tensor, state: TokenState | None = None) -> ViTOutput:
        out = super()._output(x, state)
        if self.weighted and self.tome.size is not None:
            assert state is not None  # `forward` gives a hook
            assert state.grid is not None
            # The mean of the tokens is then the mean of all patches.
            n = out.patches.shape[1]
            out.patches = out.patches * (self.tome.size * (n / math.prod(state.grid)))
            if not self.config.class_token:
                out.global_ = out.patches.mean(dim=1)
        return out


def install(model: ReIDModel, r: int, metric: Metric = "keys") -> ReIDModel:
    """Let the backbone of `model` merge r tokens in every block; returns the same model.

    Raises `ConfigError` for models that merging does not fit: with in-backbone reduction, or with
    grad_checkpointing.
    """
    if model.in_backbone is not None or model.backbone.config.grad_checkpointing:
        raise ConfigError(
            "token merging needs a model without in-backbone reduction and without grad_checkpointing"
        )
    tome, backbone = ToMe(r, metric), model.backbone
    for block in backbone.blocks:
        block.__class__ = MergingBlock
        merging = cast(MergingBlock, block)
        merging.tome, merging.prefix = tome, backbone.config.prefix
    backbone.__class__ = MergingViT
    vit = cast(MergingViT, backbone)
    vit.tome, vit.weighted = tome, model.options.fusion in ("none", "mean")
    return model
