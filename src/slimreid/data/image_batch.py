"""A batch of images for a model in use: the numpy counterpart of `ModalBatch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """B samples, each an object seen in up to M modalities at once, ready for a model.

    | field     | shape                    | what                                                 |
    |-----------|--------------------------|------------------------------------------------------|
    | `images`  | M × (B, 3, H, W) float32 | per modality, in canonical order; zeros where absent |
    | `present` | (B, M) bool              | which modalities each sample has; never none         |
    | `camera`  | (B,) int64               | number of the camera in training; others are unknown |
    | `index`   | (B,) int64               | number of the sample                                 |
    """

    images: dict[str, Floats]
    present: Bools
    camera: Ints
    index: Ints

    def __len__(self) -> int:
        return len(self.index)

    @property
    def modalities(self) -> tuple[str, ...]:
        """Names of all M modalities, in the order of the columns of `present`."""
        return tuple(self.images)

    def presence_of(self, modalities: Sequence[str]) -> Bools:
        """Which of `modalities` each sample has, in that order: (B, M) bool; unknown ones are absent."""
        column = {name: self.present[:, m] for m, name in enumerate(self.images)}
        absent = np.zeros(len(self), np.bool_)
        return np.stack([column.get(name, absent) for name in modalities], axis=1)

    def only(self, subset: Sequence[str]) -> ImageBatch | None:
        """The samples that have one of these modalities, without their others; None for none."""
        names = [name for name in self.modalities if name in subset]
        if not names:
            return None
        rows = np.flatnonzero(self.presence_of(names).any(axis=1))
        return self.take(rows, names) if len(rows) else None

    def take(self, rows: Ints, modalities: Sequence[str]) -> ImageBatch:
        """The samples at `rows` (n,), ascending, in some modalities; copies nothing where these are all."""
        at = slice(None) if len(rows) == len(self) else rows
        return ImageBatch(
            {name: image[at] for name, image in self.images.items() if name in modalities},
            self.presence_of([name for name in self.images if name in modalities])[at],
            self.camera[at],
            self.index[at],
        )

    def by_subset(self) -> Iterator[tuple[tuple[str, ...], Ints]]:
        """Each set of modalities that samples have, and the samples (n,) that have exactly these."""
        kinds, which = np.unique(self.present, axis=0, return_inverse=True)
        for number, mask in enumerate(kinds):
            subset = tuple(name for name, there in zip(self.modalities, mask, strict=True) if there)
            yield subset, np.flatnonzero(which.reshape(-1) == number)


def join_samples(
    samples: Sequence[Mapping[str, Floats]],
    modalities: Sequence[str],
    size: tuple[int, int],
    cameras: Sequence[int],
    index: Sequence[int],
) -> ImageBatch:
    """Samples {modality: (3, *size)} as a batch; absent modalities are zeros."""
    images = {name: np.zeros((len(samples), 3, *size), np.float32) for name in modalities}
    present = np.zeros((len(samples), len(modalities)), np.bool_)
    for b, sample in enumerate(samples):
        for m, name in enumerate(modalities):
            if name in sample:
                images[name][b] = sample[name]
                present[b, m] = True
    return ImageBatch(images, present, np.array(cameras, np.int64), np.array(index, np.int64))
