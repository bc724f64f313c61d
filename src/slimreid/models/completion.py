"""Completion: the block of an absent modality, predicted from the blocks of those that are present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError

_EPS = 1e-5
_MOMENTUM = 0.1


class Completion(nn.Module):
    """Fills absent blocks of an embedding by small heads, one per ordered pair of modalities.

    Blocks are standardised per modality and channel first (running mean and variance of training), because
    what they have in common is by far the largest part of them and would be all that is learned. A head
    Linear · GELU · Linear predicts the standardised block of one modality from that of another; the
    prediction is the mean over the modalities that are present. Raises `ConfigError` for fewer than two.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int, modalities: Sequence[str], hidden: int | None = None) -> None:
        super().__init__()
        self.modalities = tuple(modalities)
        if len(self.modalities) < 2:
            raise ConfigError("model.completion needs two modalities: one has nothing to be predicted from")
        width = max(1, dim // 4) if hidden is None else hidden
        self.heads = nn.ModuleDict(
            {
                target: nn.ModuleDict(
                    {
                        source: nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, dim))
                        for source in self.modalities
                        if source != target
                    }
                )
                for target in self.modalities
            }
        )
        for head in (h for heads in self.heads.values() for h in cast(nn.ModuleDict, heads).values()):
            last = cast(nn.Linear, cast(nn.Sequential, head)[2])
            nn.init.zeros_(last.weight)  # begins as the mean block of the modality, which is no bad guess
            nn.init.zeros_(last.bias)
        M = len(self.modalities)
        self.register_buffer("mean", torch.zeros(M, dim))
        self.register_buffer("variance", torch.ones(M, dim))
        self.register_buffer("seen", torch.zeros(M, dtype=torch.bool))

    def forward(self, blocks: Tensor, present: Tensor) -> Tensor:
        """Blocks (B, M, D) with those outside `present` (B, M) bool predicted; at least one is present."""
        with torch.autocast(blocks.device.type, enabled=False):
            z = self._standardised(blocks.float())
            filled = []
            for t in range(len(self.modalities)):
                predicted = self._predict(z, present, t) * (self.variance[t] + _EPS).sqrt() + self.mean[t]
                filled.append(torch.where(present[:, t, None], blocks[:, t], predicted.to(blocks.dtype)))
            return torch.stack(filled, dim=1)

    def loss(
        self, blocks: Tensor, present: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """How badly present blocks (B, M, D) are predicted from some of the others present: a scalar.

        For every present block of a sample that has others, each of those takes part with probability ½,
        at least one does. The squared error is a mean over channels that vary by 1, so 1 is what knowing
        nothing gives and 0 is perfect; 0 too when no sample has two modalities. Only the heads learn: the
        blocks are taken without gradient. Running mean and variance are updated.
        """
        blocks = blocks.detach().float()
        B, M, _ = blocks.shape
        present = torch.ones(B, M, dtype=torch.bool, device=blocks.device) if present is None else present
        with torch.autocast(blocks.device.type, enabled=False):
            self._observe(blocks, present)
            z = self._standardised(blocks)
            total, count = blocks.new_zeros(()), blocks.new_zeros(())
            for t in range(M):
                others = present & (torch.arange(M, device=blocks.device) != t)
                valid = (present[:, t] & others.any(1)).to(blocks.dtype)  # (B,)
                wrong = (self._predict(z, some_of(others, generator), t) - z[:, t]).square().mean(1)
                total, count = total + (wrong * valid).sum(), count + valid.sum()
            return total / count.clamp_min(1)

    def _predict(self, z: Tensor, sources: Tensor, target: int) -> Tensor:
        """Mean over `sources` (B, M) bool of what each says of the target block: z (B, M, D) -> (B, D)."""
        heads = cast(nn.ModuleDict, self.heads[self.modalities[target]])
        total, count = torch.zeros_like(z[:, 0]), torch.zeros_like(z[:, 0, :1])
        for name, head in heads.items():
            m = self.modalities.index(name)
            mask = sources[:, m, None].to(z.dtype)
            # Absent blocks are zero; their product is too, and every head stays in the graph.
            total, count = total + head(z[:, m]) * mask, count + mask
        return total / count.clamp_min(1)

    def _standardised(self, blocks: Tensor) -> Tensor:
        return (blocks - self.mean) / (self.variance + _EPS).sqrt()

    @torch.no_grad()
    def _observe(self, blocks: Tensor, present: Tensor) -> None:
        """Move mean and variance towards those of the present blocks; the first are taken as they are."""
        for m in range(len(self.modalities)):
            rows = blocks[present[:, m], m]
            if len(rows) < 2:
                continue
            seen = cast(Tensor, self.seen)
            share = _MOMENTUM if bool(seen[m]) else 1.0
            self.mean[m].lerp_(rows.mean(0), share)
            self.variance[m].lerp_(rows.var(0), share)
            seen[m] = True


def some_of(sets: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random part of each set: every member with probability ½, at least one of a set that has any.

    (B, M) bool -> (B, M) bool.
    """
    draw = torch.rand(sets.shape, device=sets.device, generator=generator).masked_fill(~sets, 2.0)
    least = draw == draw.amin(1, keepdim=True)
    return sets & ((draw < 0.5) | least)
