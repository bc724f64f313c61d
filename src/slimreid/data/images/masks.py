"""True masks of objects, where a dataset has them: which part of each patch shows the object."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from slimreid.arrays import Doubles
from slimreid.data.images.decode import read_image
from slimreid.data.manifest import Manifest, Sample

MASKS = "masks"
"""Folder beside the manifest."""


def mask_file(manifest: Manifest, sample: Sample) -> Path:
    """Where the mask of a sample would be: `masks/test/x.png` for the image `test/RGB/x.jpg`."""
    first = PurePosixPath(next(iter(sample.images.values())).path)
    return manifest.root / MASKS / first.parent.parent / f"{first.stem}.png"


def read_mask(manifest: Manifest, sample: Sample) -> Image.Image | None:
    """The mask of a sample, 255 where the object shows; None where there is none.

    Raises `DataError` for a file that cannot be read.
    """
    path = mask_file(manifest, sample)
    if not path.is_file():
        return None
    return Image.fromarray(read_image(path)[..., 0])


def object_shares(mask: Image.Image, grid: tuple[int, int]) -> Doubles:
    """Share of each patch that shows the object, (N,) in [0, 1], for a grid (down, across) over the image."""
    shown = np.asarray(mask) >= 128
    shares: Doubles = _cells(grid[0], shown.shape[0]) @ shown @ _cells(grid[1], shown.shape[1]).T
    return shares.ravel()


def _cells(count: int, length: int) -> Doubles:
    """(count, length): share of each of `count` equal cells that each of `length` pixels makes up."""
    width = length / count
    start = np.arange(count)[:, None] * width
    pixel = np.arange(length)[None]
    overlap = np.minimum(pixel + 1, start + width) - np.maximum(pixel, start)
    shares: Doubles = np.clip(overlap, 0.0, None) / width
    return shares
