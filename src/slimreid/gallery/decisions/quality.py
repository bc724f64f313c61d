"""Whether an image is fit to be enrolled, and if not, why.

Three things are measured on the grey values of an image:

| measure   | how                                                                    | limit  |
|-----------|------------------------------------------------------------------------|--------|
| size      | longer and shorter side in pixels                                      | 32, 16 |
| contrast  | standard deviation of the grey values                                  | 6      |
| sharpness | standard deviation of the Laplacian over contrast, about 128 rows high | 0.15   |

Where the limits come from:

- Sharpness and contrast: 1,500 photographs of people (Market-1501, 128×64). None of them lies below as they
  are (0.1 % have a sharpness below 0.216, all a contrast above 20); after a Gaussian blur of 2 pixels 99 %
  have a sharpness below 0.133.
- Size: 240 samples of 120 people of the synthetic world, trained at 96×48. Rank-1 is 97.5 with whole queries,
  95.8 with queries reduced to 48×24 pixels, 93.3 at 32×16, 87.5 at 24×12 and 73.3 at 16×8.
- Near-duplicates: in the same world 99 % of the samples have a cosine above 0.9975 with themselves after
  another JPEG compression (quality 60), and none of 480 has more than 0.9965 with another image of the same
  person by the same camera.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slimreid.arrays import Floats, Pixels
from slimreid.errors import DataError

TOO_SMALL, BLURRED, EMPTY = "too small", "blurred", "empty"
NEAR_DUPLICATE, CLOSER_TO_OTHER = "near-duplicate", "closer to somebody else"
REASONS = (TOO_SMALL, BLURRED, EMPTY, NEAR_DUPLICATE, CLOSER_TO_OTHER)

LONGER_SIDE, SHORTER_SIDE = 32, 16
"""Least lengths in pixels."""
CONTRAST = 6.0
"""Least standard deviation of the grey levels, of 255."""
SHARPNESS = 0.15
"""Least value of `sharpness`."""
DUPLICATE = 0.997
"""Cosine from which two samples are the same picture."""

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_HEIGHT = 128
"""Sharpness is measured at about this height, so that it does not depend on the size of a crop."""


@dataclass(frozen=True)
class Quality:
    """How good an image is: 0 = useless, 1 = nothing to complain of."""

    value: float
    reasons: tuple[str, ...] = ()
    """Of `REASONS`; empty for a good image."""

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 1:
            raise DataError(f"quality must lie between 0 and 1, not {self.value}")


def image_quality(pixels: Pixels) -> Quality:
    """Quality of an image (H, W) or (H, W, 3) of uint8.

    The value is the product of three factors, each 0 at half of its limit and below, 1 at twice the limit and
    above. Raises `DataError` for other shapes or types.
    """
    if (
        pixels.dtype != np.uint8
        or pixels.ndim not in (2, 3)
        or not pixels.size
        or pixels.shape[2:] not in ((), (3,))
    ):
        raise DataError(
            f"an image must be (H, W) or (H, W, 3) of uint8, not {pixels.shape} of {pixels.dtype}"
        )
    grey = pixels.astype(np.float32) if pixels.ndim == 2 else pixels @ _LUMA
    sides = sorted(grey.shape)
    contrast = float(grey.std())
    relative = {
        TOO_SMALL: min(sides[1] / LONGER_SIDE, sides[0] / SHORTER_SIDE),
        EMPTY: contrast / CONTRAST,
    }
    if contrast >= CONTRAST and sides[0] >= 3:  # the sharpness of nothing is noise
        relative[BLURRED] = sharpness(grey) / SHARPNESS
    value = float(np.prod([np.clip(np.log2(max(r, 0.5)) / 2 + 0.5, 0, 1) for r in relative.values()]))
    return Quality(value, tuple(reason for reason in REASONS if relative.get(reason, 1.0) < 1))


def sample_quality(images: Mapping[str, Pixels]) -> Quality:
    """Quality of a sample from its images by modality: the mean value; reasons name the modality.

    "tir: blurred". Raises `DataError` where there is no image.
    """
    if not images:
        raise DataError("a sample without images has no quality")
    found = {name: image_quality(pixels) for name, pixels in images.items()}
    reasons = tuple(f"{name}: {reason}" for name, quality in found.items() for reason in quality.reasons)
    return Quality(float(np.mean([quality.value for quality in found.values()])), reasons)


def sharpness(grey: Floats) -> float:
    """Standard deviation of the Laplacian of grey values (H, W), divided by their own; 0 for a constant."""
    step = max(1, round(grey.shape[0] / _HEIGHT))
    H, W = grey.shape[0] // step, grey.shape[1] // step
    if min(H, W) < 3:
        return 0.0
    small = grey[: H * step, : W * step].reshape(H, step, W, step).mean(axis=(1, 3))
    centre = small[1:-1, 1:-1]
    laplacian = small[:-2, 1:-1] + small[2:, 1:-1] + small[1:-1, :-2] + small[1:-1, 2:] - 4 * centre
    deviation = float(small.std())
    return float(laplacian.std()) / deviation if deviation > 0 else 0.0
