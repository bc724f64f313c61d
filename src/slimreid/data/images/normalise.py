"""From the images of a sample to what a model sees of them in test, in numpy alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from slimreid.data.images.window import Pixels
from slimreid.errors import DataError

Floats = NDArray[np.float32]


def normalise(image: Pixels, mean: float, std: float) -> Floats:
    """(3, H, W) uint8 to contiguous float32 with (x / 255 − mean) / std."""
    x = image.astype(np.float32, order="C")
    x *= np.float32(1 / (255 * std))
    x -= np.float32(mean / std)
    return x


def check_aligned(pixels: Mapping[str, Pixels], names: Mapping[str, str]) -> None:
    """Refuse images (H, W, 3) of one sample that differ in aspect: their patches would not match.

    Raises `DataError` with the image's entry in `names`.
    """
    (first, image), *others = pixels.items()
    height, width = image.shape[:2]
    for name, other in others:
        H, W = other.shape[:2]
        if abs(H * width - W * height) > max(height, width, H, W):
            raise DataError(
                f"{names[name]}: '{name}' is {W}×{H} but '{first}' is {width}×{height}; spectra of one "
                f"sample must be aligned, crop or resize them to one shape"
            )
