"""DeMo's fusion of modalities: hierarchical decoupling (HDM) and mixture of experts (ATMoE).

Both are written for any set of modalities: there is one query, and one expert per head, for each
non-empty subset, in the order of `all_subsets` (r, n, t, rn, rt, nt, rnt for three).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from slimreid.backbones.layers import quick_gelu
from slimreid.errors import ConfigError
from slimreid.modalities import all_subsets, subset_name

_DROPOUT = 0.1
"""Of attention weights while training."""


class HDM(nn.Module):
    """Learned queries, one per subset of modalities, that attend to the tokens of that subset."""

    def __init__(self, dim: int, modalities: Sequence[str]) -> None:
        super().__init__()
        heads = max(1, dim // 64)
        if dim % heads:
            raise ConfigError(f"HDM has one head per 64 channels, and {heads} do not divide the width {dim}")
        self.modalities = tuple(modalities)
        self.subsets = all_subsets(modalities)
        names = [subset_name(subset, modalities) for subset in self.subsets]
        self.queries = nn.Parameter(torch.randn(len(names), 1, dim) * dim**-0.5)
        self.attention = nn.ModuleDict(
            {name: nn.MultiheadAttention(dim, heads, _DROPOUT, batch_first=True) for name in names}
        )

    def subset_presence(self, present: Tensor) -> Tensor:
        """(B, M) -> (B, S): which subsets have at least one member."""
        members = [[self.modalities.index(m) for m in subset] for subset in self.subsets]
        return torch.stack([present[:, m].any(1) for m in members], 1)

    def forward(
        self,
        tokens: Tensor,
        present: Tensor | None = None,
        size: Tensor | None = None,
        given: Sequence[int] | None = None,
    ) -> Tensor:
        """tokens (B, M, T, C) = [global ; patches] of each modality -> (B, S, C), zero where absent.

        `present` (B, M) bool, None for all. With `size` (B, M, T) a token counts as so many patches. Where
        every sample has the same modalities, `given` is their numbers, and the others cost nothing.
        """
        B, M, T, C = tokens.shape
        features = []
        for query, subset, attention in zip(self.queries, self.subsets, self.attention.values(), strict=True):
            members = [self.modalities.index(name) for name in subset]
            if given is not None:
                members = [m for m in members if m in given]
            if not members:
                features.append(tokens.new_zeros(B, C))
                continue
            keys = tokens[:, members].flatten(1, 2)  # (B, |subset|·T, C)
            mask = None if size is None else size[:, members].flatten(1, 2).to(keys.dtype).log()
            if present is None or given is not None:
                features.append(_attend(attention, query, keys, mask))
                continue
            rows = present[:, members].any(1)
            absent = ~present[:, members].repeat_interleave(T, 1)
            mask = absent if mask is None else mask.masked_fill(absent, -math.inf)
            some = _attend(attention, query, keys[rows], mask[rows])
            features.append(keys.new_zeros(B, C).index_put((rows,), some.to(keys.dtype)))
        return torch.stack(features, dim=1)


def _attend(attention: nn.Module, query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """One query (1, C) over keys (B, T, C) -> (B, C); mask (B, T): true is hidden, or added to the logits."""
    q = query.expand(keys.shape[0], 1, -1)
    if keys.shape[0] == 0:
        return keys.new_zeros(0, keys.shape[-1])
    out: Tensor = attention(q, keys, keys, key_padding_mask=mask, need_weights=False)[0]
    return out[:, 0]


class ATMoE(nn.Module):
    """Attention-gated mixture of experts over S features of C channels, in H heads.

    Gates: the joint feature asks, each feature answers, softmax over the S. Head h has S experts,
    Linear · QuickGELU · BatchNorm on the h-th chunk of each feature; all H·S of them are stacked in
    one tensor.
    """

    def __init__(self, dim: int, features: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ConfigError(f"model.moe_heads {heads} does not divide the width {dim}")
        S, H, D = features, heads, dim // heads
        self.heads = heads
        self.joint = nn.Linear(S * dim, dim)
        self.joint_norm = nn.BatchNorm1d(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.expert_weight = nn.Parameter(torch.empty(H, S, D, D))
        self.expert_bias = nn.Parameter(torch.zeros(H, S, D))
        self.expert_norm = nn.BatchNorm1d(H * S * D)
        nn.init.trunc_normal_(self.expert_weight, std=D**-0.5)

    def forward(self, features: Tensor) -> Tensor:
        """features (B, S, C) -> weighted expert outputs (B, S, C)."""
        B, S, C = features.shape
        H, D = self.heads, C // self.heads
        q = self.query(self.joint_norm(quick_gelu(self.joint(features.flatten(1)))))  # (B, C)
        k = self.key(features).view(B, S, H, D)
        gates = (torch.einsum("bhd,bshd->bhs", q.view(B, H, D), k) * D**-0.5).softmax(-1)
        chunks = features.view(B, S, H, D)
        out = torch.einsum("bshd,hsed->bhse", chunks, self.expert_weight) + self.expert_bias
        out = self.expert_norm(quick_gelu(out).flatten(1)).view(B, H, S, D)
        weighted: Tensor = gates[..., None] * out
        return weighted.transpose(1, 2).reshape(B, S, C)
