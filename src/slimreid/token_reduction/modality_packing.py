"""Packing a batch of several modalities into rows, one per (sample, modality) pair that is present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from slimreid.config.token_reduction import TERM_NAMES
from slimreid.errors import ConfigError, ModelError

SHARED = "shared"
"""Name of the parameters that all modalities share."""
_RESERVED = (*TERM_NAMES, SHARED)


def check_names(modalities: Sequence[str]) -> None:
    """Raise `ConfigError` unless names are different and can name modules and scores of their own."""
    if not modalities or len(set(modalities)) != len(modalities):
        raise ConfigError(f"modalities: {list(modalities)} are not one or more different names")
    for name in modalities:
        if not name or "." in name or name in _RESERVED or hasattr(nn.ModuleDict(), name):
            raise ConfigError(f"modalities: '{name}' cannot be the name of a modality; choose another word")


class Guides(NamedTuple):
    """What guides each of R rows: its own modality first, then the sample's other modalities."""

    vectors: Tensor
    """(R, M, C): their global vectors; zero where absent."""
    modality: Tensor
    """(R, M): which modality each of them is."""
    rows: Tensor
    """(R, M − 1): the rows of the others; 0 where absent."""
    present: Tensor | None
    """(R, M − 1) bool: which of the others are there; None for all."""


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
    """Samples in the batch (B)."""

    @property
    def complete(self) -> bool:
        """Whether nothing is absent."""
        return all(size == self.batch for size in self.sizes)

    @property
    def given(self) -> tuple[int, ...] | None:
        """The modalities that every sample has while none has another; None where samples differ."""
        if self.complete:
            return tuple(range(len(self.sizes)))
        given = tuple(m for m, size in enumerate(self.sizes) if size != 0)
        return given if given and all(self.sizes[m] == self.batch for m in given) else None

    def pack(self, stacked: Tensor) -> Tensor:
        """(B, M, …) -> (R, …); without a copy when nothing is absent and memory is modality first."""
        if self.complete:
            return stacked.transpose(0, 1).flatten(0, 1)
        M = len(self.sizes)
        return stacked.flatten(0, 1).index_select(0, self.sample * M + self.modality)

    def unpack(self, rows: Tensor) -> Tensor:
        """(R, …) -> (B, M, …), zero where absent."""
        M, given = len(self.sizes), self.given
        if given is not None:
            columns = rows.reshape(len(given), self.batch, *rows.shape[1:])
            if len(given) < M:
                absent = torch.zeros_like(columns[:1])
                parts = [columns[given.index(m)][None] if m in given else absent for m in range(M)]
                columns = torch.cat(parts)
            return columns.transpose(0, 1)
        full = rows.new_zeros(self.batch * M, *rows.shape[1:])
        full = full.index_copy(0, self.sample * M + self.modality, rows)
        return full.reshape(self.batch, M, *rows.shape[1:])

    def present(self) -> Tensor | None:
        """(B, M) bool: which pairs have a row; None for all."""
        if self.complete:
            return None
        if self.given is not None:
            there = torch.tensor([size != 0 for size in self.sizes], device=self.sample.device)
            return there.expand(self.batch, -1)
        return self.unpack(torch.ones_like(self.sample, dtype=torch.bool))

    def guides(self, vectors: Tensor) -> Guides:
        """Gather what guides each row from the global vectors (R, C) of all rows."""
        M, own = len(self.sizes), self.modality[:, None]
        others = torch.arange(M - 1, device=own.device).expand(own.shape[0], -1)
        order = torch.cat([own, others + (others >= own)], dim=1)  # (R, M)
        at = self.sample[:, None]
        numbers = self.unpack(torch.arange(own.shape[0], device=own.device))  # (B, M)
        present = self.present()
        return Guides(
            vectors=self.unpack(vectors)[at, order],
            modality=order,
            rows=numbers[at, order[:, 1:]],
            present=None if present is None else present[at, order[:, 1:]],
        )


def pack_all(batch: int, modalities: int, device: torch.device | None = None) -> Packing:
    """Packing of a batch in which every modality of every sample is present."""
    return pack_given(batch, (True,) * modalities, device)


def pack_given(batch: int, given: Sequence[bool], device: torch.device | None = None) -> Packing:
    """Packing of a batch in which every sample has the modalities that are `given`, and no other."""
    columns = torch.tensor([m for m, there in enumerate(given) if there], dtype=torch.int64, device=device)
    sample = torch.arange(batch, device=device).repeat(len(columns))
    modality = columns[:, None].repeat(1, batch).reshape(-1)
    return Packing(sample, modality, tuple(batch if there else 0 for there in given), batch)


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


def pack_images(
    images: Mapping[str, Tensor],
    present: Tensor | None,
    modalities: Sequence[str],
    *,
    zeros: bool = False,
) -> tuple[Tensor, Packing]:
    """Images of all present (sample, modality) pairs as rows (R, 3, H, W), and where they belong.

    images {modality: (B, 3, H, W)}, any subset of `modalities`; present (B, M) bool, or None for all that
    are given. With `zeros` every modality has its rows, and absent ones are zero images. Raises `ModelError`
    when names, types or shapes do not fit, or a sample has no modality.
    """
    _check_images(images, modalities)
    first = next(iter(images.values()))
    B, M = first.shape[0], len(modalities)
    if present is None:  # nothing here looks at values, so that a model can be exported
        names = [name for name in modalities if zeros or name in images]
        rows = torch.cat([images[name] if name in images else torch.zeros_like(first) for name in names])
        return rows, pack_given(B, [name in names for name in modalities], first.device)
    given = torch.tensor([name in images for name in modalities], device=first.device)
    if present.shape != (B, M) or present.dtype != torch.bool:
        raise ModelError(f"present must be bool ({B}, {M}), not {present.dtype} {tuple(present.shape)}")
    present = present & given
    empty = (~present.any(1)).nonzero()
    if len(empty):
        raise ModelError(f"sample {int(empty[0])} of the batch has no image of any modality")
    if zeros:
        full = [images.get(name, torch.zeros_like(first)) for name in modalities]
        keep = present.t()[:, :, None, None, None].to(first.dtype)
        return torch.cat([x * k for x, k in zip(full, keep, strict=True)]), pack_all(B, M, first.device)
    packing = pack_present(present)
    if packing.complete and len(images) == M:
        return torch.cat([images[name] for name in modalities]), packing
    some = [images[n][present[:, m]] for m, n in enumerate(modalities) if n in images]
    return torch.cat(some), packing


def _check_images(images: Mapping[str, Tensor], modalities: Sequence[str]) -> None:
    """Raise `ModelError` unless the images are floating-point, of one shape, and of known modalities."""
    unknown = [name for name in images if name not in modalities]
    if unknown or not images:
        raise ModelError(f"images of {unknown or 'nothing'}; the model knows {', '.join(modalities)}")
    shapes = {name: tuple(image.shape) for name, image in images.items()}
    first = next(iter(shapes.values()))
    if any(shape != first for shape in shapes.values()):
        raise ModelError(f"images of all modalities must have one shape, not {shapes}")
    for name, image in images.items():
        if not image.is_floating_point():
            raise ModelError(
                f"images of '{name}' must be floating-point, not {image.dtype}; scale them first"
            )
