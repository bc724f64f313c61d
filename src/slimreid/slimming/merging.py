"""Kept patches become a few tokens by learned, normalised weights (eq. 4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slimreid.errors import ModelError


def merged_count(num_patches: int, merge_ratio: float, keep_ratio: float) -> int:
    """N_c = max(1, int(N · merge_ratio · keep_ratio)), multiplied in this order."""
    return max(1, int(num_patches * merge_ratio * keep_ratio))


def merge_patches(kept: Tensor, logits: Tensor, *, decision: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weighted sums of the kept patches.

    kept (B, K, C), logits (B, K, N_c), decision (B, K): the kept entries of D, or None to leave it
    out -> merged (B, N_c, C) and the weights (B, N_c, K), each row of which sums to 1. D enters as
    log D: kept entries are 1, so nothing changes forward, and its gradient is that of a logit
    instead of one blown up by a masking constant. Raises `ModelError` on shapes that do not fit.
    """
    B, K, _ = kept.shape
    if logits.shape[:2] != (B, K) or (decision is not None and decision.shape != (B, K)):
        raise ModelError(
            f"logits must be ({B}, {K}, N_c) and the decision ({B}, {K}), not {tuple(logits.shape)}"
            + ("" if decision is None else f" and {tuple(decision.shape)}")
        )
    logits = logits.transpose(1, 2).to(torch.promote_types(logits.dtype, torch.float32))
    if decision is not None:
        logits = logits + decision.log()[:, None]
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


class DualPatchMerger(nn.Module):
    """Two weight networks for two choices of patches, one shared scale; the results are added."""

    def __init__(self, dim: int, merged_tokens: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList(weight_network(dim, merged_tokens) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(1, 1, 1))

    def forward(
        self, kept: tuple[Tensor, Tensor], decisions: tuple[Tensor | None, Tensor | None] = (None, None)
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Two times kept (B, K, C), decision (B, K) -> merged (B, N_c, C), two weights (B, N_c, K)."""
        merged, weights = zip(
            *(
                merge_patches(patches, network(patches) * self.scale, decision=decision)
                for patches, network, decision in zip(kept, self.weights, decisions, strict=True)
            ),
            strict=True,
        )
        return merged[0] + merged[1], weights
