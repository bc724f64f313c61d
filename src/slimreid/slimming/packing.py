"""Rows of a batch that exist: absent (sample, modality) pairs are left out of all computation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slimreid.errors import ModelError


@dataclass(frozen=True)
class Packing:
    """Where the R present rows of a (B, M) batch are; rows are sorted by modality, then sample.

    Made outside a compiled region, because R depends on the data.
    """

    sample: Tensor
    """(R,) sample of each row."""
    modality: Tensor
    """(R,) modality of each row."""
    sizes: tuple[int, ...]
    """Number of rows of each of the M modalities."""
    batch: int
    """B"""

    @property
    def complete(self) -> bool:
        """Whether nothing is absent."""
        return all(size == self.batch for size in self.sizes)

    def pack(self, stacked: Tensor) -> Tensor:
        """(B, M, …) -> (R, …); without a copy when nothing is absent and memory is modality first."""
        if self.complete:
            return stacked.transpose(0, 1).flatten(0, 1)
        M = len(self.sizes)
        return stacked.flatten(0, 1).index_select(0, self.sample * M + self.modality)

    def unpack(self, rows: Tensor) -> Tensor:
        """(R, …) -> (B, M, …), zero where absent."""
        M = len(self.sizes)
        if self.complete:
            return rows.reshape(M, self.batch, *rows.shape[1:]).transpose(0, 1)
        full = rows.new_zeros(self.batch * M, *rows.shape[1:])
        full = full.index_copy(0, self.sample * M + self.modality, rows)
        return full.reshape(self.batch, M, *rows.shape[1:])


def pack_all(batch: int, modalities: int, device: torch.device | None = None) -> Packing:
    """Packing of a batch in which every modality of every sample is present."""
    row = torch.arange(batch * modalities, device=device)
    sample, modality = row % max(batch, 1), row // max(batch, 1)
    return Packing(sample, modality, (batch,) * modalities, batch)


def pack_present(present: Tensor) -> Packing:
    """Packing by a presence mask (B, M) bool. Raises `ModelError` if it is not one."""
    if present.ndim != 2 or present.dtype != torch.bool:
        raise ModelError(f"present must be bool (B, M), not {present.dtype} {tuple(present.shape)}")
    B, M = present.shape
    sizes = tuple(int(size) for size in present.sum(0).tolist())
    if all(size == B for size in sizes):
        return pack_all(B, M, present.device)
    modality, sample = present.t().nonzero(as_tuple=True)
    return Packing(sample, modality, sizes, B)
