"""Values of pixels: more than 8 bits as 8-bit grey, 8 bits as the numbers a model sees. In numpy alone.

Thermal cameras store 16 bits or floating point. A fixed window, `low high` from the manifest or the
config, keeps absolute heat: the same temperature is the same grey in every image. Without one, the 1st
and 99th percentile of each image become black and white, which shows the shapes but forgets the
temperature.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from PIL import Image

from slimreid.data.manifest import Window
from slimreid.errors import DataError

Pixels = npt.NDArray[np.uint8]

ROBUST_PERCENTILES = (1.0, 99.0)
_STRIPE = 1 << 20  # pixels mapped at once, so that large images need little memory beyond their own


Floats = NDArray[np.float32]


def is_deep(mode: str) -> bool:
    """Whether images of a Pillow mode hold more than 8 bits per value."""
    return mode in ("I", "F") or mode.startswith("I;16")


def image_pixels(image: Image.Image, window: Window | None = None) -> Pixels:
    """A decoded image as (H, W, 3) uint8; deep values, and any with a window, are mapped to grey."""
    deep = is_deep(image.mode)
    if not deep and window is None:
        return np.array(image.convert("RGB"))
    values = np.asarray(image if deep else image.convert("L"), dtype=np.float32)
    return np.repeat(apply_window(values, window)[..., None], 3, axis=-1)


def apply_window(values: npt.NDArray[np.float32], window: Window | None) -> Pixels:
    """Map (H, W) values to 8 bits: `window` = (low, high) to (0, 255), or robust percentiles if None.

    Raises `ValueError` for an image without finite values, or whose range is beyond 32-bit numbers.
    """
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError("no finite value in the image")
    low, high = window or np.percentile(values[finite], ROBUST_PERCENTILES, overwrite_input=True)
    grey = np.zeros(values.shape, np.uint8)
    if high <= low:  # a constant image has no contrast to keep
        return grey
    if not high - low < np.finfo(np.float32).max:
        raise ValueError(f"values from {low:g} to {high:g} are no picture; give a window")
    rows = max(1, _STRIPE // values.shape[1])
    for top in range(0, len(values), rows):
        part = np.nan_to_num(values[top : top + rows], nan=low, posinf=high, neginf=low)
        with np.errstate(over="ignore"):  # far outside the window is black or white all the same
            scaled = (part - low) * (255.0 / (high - low))
        grey[top : top + rows] = np.rint(scaled.clip(0, 255))
    return grey


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
                f"{names[name]}: '{name}' is {W}×{H} but '{first}' is {width}×{height}; modalities of one "
                f"sample must be aligned, crop or resize them to one shape"
            )
