"""Merging: kept patches by learned weights (eq. 4), dropped ones into a leftover or the nearest kept one.

`ReducedTokens` is what a whole reduction leaves: the tokens, and how they came about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.errors import ModelError
from slimreid.token_reduction.modality_packing import Packing
from slimreid.token_reduction.select import Selection, stable_top


def merged_count(num_patches: int, merge_ratio: float, keep_ratio: float) -> int:
    """N_c = max(1, int(N · merge_ratio · keep_ratio)), multiplied in this order."""
    return max(1, int(num_patches * merge_ratio * keep_ratio))


def merge_patches(kept: Tensor, logits: Tensor, *, decision: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weighted sums of the kept patches.

    kept (B, K, C), logits (B, K, N_c), decision (B, K): the kept entries of D, or None to leave it
    out -> merged (B, N_c, C) and the weights (B, N_c, K), each row of which sums to 1. D enters as
    log D: where it is 1 nothing changes forward, and its gradient is that of a logit instead of one
    blown up by a masking constant; where it is 0 the patch has no weight. Raises `ModelError` on shapes
    that do not fit.
    """
    B, K, _ = kept.shape
    if logits.shape[:2] != (B, K) or (decision is not None and decision.shape != (B, K)):
        raise ModelError(
            f"logits must be ({B}, {K}, N_c) and the decision ({B}, {K}), not {tuple(logits.shape)}"
            + ("" if decision is None else f" and {tuple(decision.shape)}")
        )
    logits = logits.transpose(1, 2).to(torch.promote_types(logits.dtype, torch.float32))
    if decision is not None:
        empty = decision == 0  # log 0 would have an infinite gradient
        logs = decision.masked_fill(empty, 1.0).log().masked_fill(empty, -math.inf)
        logits = logits + logs[:, None]
    weights = logits.softmax(-1)
    return torch.bmm(weights.to(kept.dtype), kept), weights


def weight_network(dim: int, merged_tokens: int) -> nn.Sequential:
    """LayerNorm(C) · Linear(C, int(0.2·C)) · GELU · Linear(·, N_c)."""
    hidden = max(1, int(0.2 * dim))
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, merged_tokens)
    )


class PatchMerger(nn.Module):
    """One weight network and one learned scale."""

    def __init__(self, dim: int, merged_tokens: int) -> None:
        super().__init__()
        self.weight = weight_network(dim, merged_tokens)
        self.scale = nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, kept: Tensor, decision: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """kept (B, K, C), decision (B, K) -> merged (B, N_c, C), weights (B, N_c, K)."""
        return merge_patches(kept, self.logits(kept), decision=decision)

    def logits(self, kept: Tensor) -> Tensor:
        """kept (B, K, C) -> scaled logits (B, K, N_c)."""
        logits: Tensor = self.weight(kept) * self.scale
        return logits


def leftover_weights(score: Tensor, kept: Tensor, carried: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weights by which dropped patches, and the leftover of earlier stages, become one leftover token.

    score (B, n), kept (B, n) bool with at least one patch dropped; carried (B, 1): log-weight of the earlier
    leftover, which follows the patches -> weights (B, 1, n) or (B, 1, n + 1), each row summing to 1, and the
    new log-weight (B, 1). The weights are the softmax over the scores of *all* patches dropped so far: the
    earlier leftover counts with the sum of exp(score) of its patches.
    """
    logits = score.masked_fill(kept, -math.inf)[:, None]  # (B, 1, n)
    mass = logits.logsumexp(-1)  # (B, 1)
    weights = logits.softmax(-1)
    if carried is None:
        return weights, mass
    earlier = (carried - mass).sigmoid()  # (B, 1): share of the leftover that is there already
    weights = torch.cat([weights * (1 - earlier)[..., None], earlier[..., None]], dim=-1)
    return weights, torch.logaddexp(carried, mass)


def patch_similarity(patches: Tensor) -> Tensor:
    """Cosines between all patches of an image: (B, n, C) -> (B, n, n), without gradient.

    Each patch is normalised and the mean patch subtracted first: deep in a backbone, what all patches of an
    image share is the largest part of them and would make them all similar. In at least float32, also under
    autocast, since which patch is nearest depends on small differences.
    """
    with torch.autocast(patches.device.type, enabled=False):
        patches = patches.detach().to(torch.promote_types(patches.dtype, torch.float32))
        normed = F.layer_norm(patches, patches.shape[-1:])
        unit = F.normalize(normed - normed.mean(1, keepdim=True), dim=-1)
        return torch.bmm(unit, unit.transpose(1, 2))


def redundancy(similarity: Tensor, score: Tensor) -> Tensor:
    """How similar each patch is to one with a higher score: (B, n, n), score (B, n) -> (B, n) in [0, 1].

    Of two similar patches only the lower one is redundant (the later one on ties), so the best of several
    equal patches is never dropped before the others; the best patch of an image has 0.
    """
    n = score.shape[1]
    places = torch.arange(n, device=score.device).expand_as(score)
    rank = torch.zeros_like(places).scatter(1, stable_top(score, n), places)  # 0 = the best
    return similarity.masked_fill(rank[:, None, :] >= rank[:, :, None], 0.0).amax(-1)


def nearest_weights(similarity: Tensor, index: Tensor, size: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weights that merge every dropped patch into the nearest kept one, and the sizes that result.

    similarity (B, n, n), index (B, K) of the kept patches, size (B, n) of patches that stand for several
    already -> weights (B, K, n), each row summing to 1, and sizes (B, K). A patch counts by its size; the
    first of equally near ones is taken.
    """
    B, n, _ = similarity.shape
    K = index.shape[1]
    wide = index[:, None].expand(-1, n, -1)
    nearest = similarity.gather(2, wide).argmax(-1)  # (B, n)
    itself = torch.arange(K, device=index.device).expand(B, K)
    nearest = nearest.scatter(1, index, itself)
    size = similarity.new_ones(B, n) if size is None else size.to(similarity.dtype)
    weights = similarity.new_zeros(B, K, n).scatter(1, nearest[:, None], size[:, None])
    sizes = weights.sum(-1)
    return weights / sizes[..., None], sizes


@dataclass(frozen=True)
class ReducedTokens:
    """The result of a token reduction for R rows.

    For several modalities, after `unpack`, everything is (B, M, …) instead of (R, …).
    """

    tokens: Tensor
    """(R, T, C): [merged ; leftover], or [kept ; leftover] without a merge."""
    selections: tuple[Selection, ...]
    """The selection of patches; one per stage for reduction in the backbone, if traced."""
    weights: tuple[Tensor, ...] = ()
    """(R, N_c, K) merge weights; empty without a merge."""
    kept_share: Tensor | None = None
    """(R,): the mean of each row's decision, with its gradient, where the number kept varies."""
    size: Tensor | None = None
    """(R, T): how many patches each token stands for, 0 for an empty place; None = they count alike."""

    @property
    def selection(self) -> Selection:
        """The (first) selection."""
        return self.selections[0]

    def pooled(self) -> Tensor:
        """The mean of the tokens, each counting by its size: (R, C); zero for an absent modality."""
        return mean_by_size(self.tokens, self.size)

    def unpack(self, packing: Packing) -> ReducedTokens:
        """Spread the rows over (B, M, …), zero where a modality is absent."""
        unpacked: ReducedTokens = _unpacked(self, packing)
        return unpacked


def mean_by_size(tokens: Tensor, size: Tensor | None) -> Tensor:
    """Mean of tokens (..., T, C), each counting by its size (..., T): (..., C); None = they count alike."""
    if size is None:
        return tokens.mean(dim=-2)
    weights = size / size.sum(-1, keepdim=True).clamp_min(1)  # absent ones have size 0
    return (tokens * weights[..., None].to(tokens.dtype)).sum(dim=-2)


def _unpacked(value: Any, packing: Packing) -> Any:
    """The same with every tensor in it, which are rows, spread over (B, M, …)."""
    if isinstance(value, Tensor):
        return packing.unpack(value)
    if isinstance(value, tuple):
        return tuple(_unpacked(item, packing) for item in value)
    if isinstance(value, Mapping):
        return {name: _unpacked(item, packing) for name, item in value.items()}
    if isinstance(value, (ReducedTokens, Selection)):
        return replace(value, **{f.name: _unpacked(getattr(value, f.name), packing) for f in fields(value)})
    return value
