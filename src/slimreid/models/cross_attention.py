"""Light fusion of modalities: each one's global token attends to the tokens of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CrossAttention(nn.Module):
    """Layers in which the global token of each modality attends to itself and to all tokens of the others.

    All modalities share the parameters, with a learned vector for each that tells whose tokens they are.
    A modality without others attends to itself alone.

    Args:
        dim: Channels of a token.
        modalities: Names of the modalities.
        layers: How many times the global tokens attend.
    """

    def __init__(self, dim: int, modalities: Sequence[str], layers: int = 1) -> None:
        super().__init__()
        self.modality = nn.Parameter(torch.zeros(len(modalities), 1, dim))
        nn.init.trunc_normal_(self.modality, std=0.02)
        self.layers = nn.ModuleList(CrossLayer(dim) for _ in range(layers))

    def forward(
        self,
        tokens: Tensor,
        present: Tensor | None = None,
        size: Tensor | None = None,
        given: Sequence[int] | None = None,
    ) -> Tensor:
        """tokens (B, M, T, C) = [global ; patches] of each modality -> (B, M, C), zero where absent.

        `present` (B, M) bool, None for all. With `size` (B, M, T) a token counts as so many patches. Where
        every sample has the same modalities, `given` is their numbers, and the others cost nothing.
        """
        B, M, T, C = tokens.shape
        columns = list(range(M) if given is None else given)
        m = len(columns)
        some = tokens[:, columns] + self.modality[columns]  # (B, m, T, C)
        mask = _own_tokens(m, T, tokens.device)[None]  # (1, m, m·T): true where hidden
        if present is not None and given is None:
            mask = mask | ~present.repeat_interleave(T, 1)[:, None]
            mask = mask & ~_own_global(m, T, tokens.device)  # a row needs something to look at, absent or not
        bias = torch.zeros(mask.shape, device=tokens.device, dtype=tokens.dtype)
        if size is not None:
            bias = bias + size[:, columns].flatten(1).to(tokens.dtype).log()[:, None]
            bias = bias.masked_fill(_own_global(m, T, tokens.device), 0.0)  # absent ones have size 0
        bias = bias.masked_fill(mask, -math.inf)
        x, keys = some[:, :, 0], some.flatten(1, 2)  # (B, m, C), (B, m·T, C)
        for layer in self.layers:
            x = layer(x, keys, bias)
        if m == M:
            return x if present is None else x * present[..., None].to(x.dtype)
        empty = torch.zeros_like(x[:, :1])
        return torch.cat([x[:, [columns.index(i)]] if i in columns else empty for i in range(M)], dim=1)


class CrossLayer(nn.Module):
    """Pre-norm layer: queries attend to keys, then an MLP; both are added."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.heads = next(h for h in range(max(1, dim // 32), 0, -1) if dim % h == 0)
        self.query_norm, self.key_norm, self.mlp_norm = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """x (B, m, C), keys (B, T, C), bias (B or 1, m, T) on the logits -> (B, m, C)."""
        B, m, C = x.shape
        H, D = self.heads, C // self.heads
        q = self.query(self.query_norm(x)).view(B, m, H, D).transpose(1, 2)
        k, v = self.key_value(self.key_norm(keys)).view(B, -1, 2, H, D).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None].to(q.dtype))
        x = x + self.out(seen.transpose(1, 2).reshape(B, m, C))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


def _own_global(m: int, T: int, device: torch.device) -> Tensor:
    """(m, m·T): true at each modality's own global token."""
    first = torch.zeros(T, dtype=torch.bool, device=device)
    first[0] = True
    return (torch.eye(m, dtype=torch.bool, device=device)[..., None] & first).flatten(1)


def _own_tokens(m: int, T: int, device: torch.device) -> Tensor:
    """(m, m·T): true at each modality's own tokens but the global one."""
    own = torch.eye(m, dtype=torch.bool, device=device).repeat_interleave(T, 1)
    return own & ~_own_global(m, T, device)
