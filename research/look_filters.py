"""What a camera, its light or its surroundings do to a picture: pure functions of (H, W, 3) uint8.

Lengths (of blur and motion) are in pixels of a picture 64 wide and grow with the picture. What is random
comes from the generator that is passed in. Training degrades images by functions of its own
(`slimreid.data.augment.degrade`), so that the test stays as it is when training changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import simplejpeg
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from slimreid.arrays import Pixels
from slimreid.data.images.resize import resize

Rng = np.random.Generator
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_WIDTH = 64


def gains(image: Pixels, factors: ArrayLike) -> Pixels:
    """Channels times `factors`, one number or three: darkness, or a cast of colour."""
    return _to_pixels(image.astype(np.float32) * np.asarray(factors, np.float32))


def gamma(image: Pixels, exponent: float) -> Pixels:
    """Values from 0 to 1 to the power of `exponent`; below 1 is brighter."""
    table = _to_pixels(255 * (np.arange(256) / 255) ** exponent)
    shown: Pixels = table[image]
    return shown


def contrast(image: Pixels, factor: float) -> Pixels:
    """Distances from the mean grey of the picture times `factor`."""
    mean = float((image @ LUMA).mean())
    return _to_pixels((image - np.float32(mean)) * np.float32(factor) + np.float32(mean))


def grey(image: Pixels) -> Pixels:
    """Brightness in all three channels."""
    return np.repeat(_to_pixels(image @ LUMA)[..., None], 3, axis=2)


def blur(image: Pixels, sigma: float) -> Pixels:
    """Gaussian blur."""
    s = sigma * _unit(image)
    return _to_pixels(ndimage.gaussian_filter(image.astype(np.float32), (s, s, 0), mode="nearest"))


def motion_blur(image: Pixels, length: float) -> Pixels:
    """Mean over `length` pixels of a row."""
    size = max(1, round(length * _unit(image)))
    return _to_pixels(ndimage.uniform_filter1d(image.astype(np.float32), size, axis=1, mode="nearest"))


def low_resolution(image: Pixels, factor: float) -> Pixels:
    """Down to 1 / `factor` of the size and back."""
    H, W = image.shape[:2]
    small = _resized(image, max(1, round(H / factor)), max(1, round(W / factor)))
    return _resized(small, H, W)


def jpeg(image: Pixels, quality: int) -> Pixels:
    """Through a JPEG file with colours at half resolution, as cameras write them."""
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality, "RGB", "420")
    decoded: Pixels = simplejpeg.decode_jpeg(data, "RGB")
    return decoded


def noise(image: Pixels, sigma: float, rng: Rng) -> Pixels:
    """Normal noise of `sigma` grey levels, another in every channel."""
    return _to_pixels(image + np.float32(sigma) * rng.standard_normal(image.shape, dtype=np.float32))


def draw_rectangle(shape: Sequence[int], share: float, rng: Rng) -> tuple[int, int, int, int]:
    """Top, left, height and width of a rectangle of `share` of the area of a picture (H, W, ...)."""
    H, W = shape[:2]
    tall = rng.uniform(1.25 * share, 0.8)  # as a share of H; as a share of W it is between the same bounds
    height, width = round(tall * H), round(share / tall * W)
    return int(rng.integers(H - height + 1)), int(rng.integers(W - width + 1)), height, width


def occlude(image: Pixels, rectangle: tuple[int, int, int, int], colour: ArrayLike) -> Pixels:
    """A rectangle (top, left, height, width) of one colour."""
    top, left, height, width = rectangle
    result: Pixels = image.copy()
    result[top : top + height, left : left + width] = colour
    return result


def reframe(image: Pixels, scale: float, down: float, right: float) -> Pixels:
    """Another box around the person: `scale` times the size, moved by shares of height and width.

    What lies outside the picture repeats its edge, for nobody knows what was there.
    """
    H, W = image.shape[:2]
    height, width = max(1, round(scale * H)), max(1, round(scale * W))
    top, left = round((H - height) / 2 + down * H), round((W - width) / 2 + right * W)
    rows = np.arange(top, top + height).clip(0, H - 1)
    columns = np.arange(left, left + width).clip(0, W - 1)
    return _resized(np.asarray(image[rows[:, None], columns]), H, W)


def jitter_box(image: Pixels, most: float, rng: Rng) -> Pixels:
    """`reframe` by up to ±`most` in size and in either direction."""
    return reframe(image, 1 + rng.uniform(-most, most), *rng.uniform(-most, most, size=2))


def _resized(image: Pixels, height: int, width: int) -> Pixels:
    resized: Pixels = np.ascontiguousarray(resize(image, (height, width), "bilinear").transpose(1, 2, 0))
    return resized


def _unit(image: Pixels) -> float:
    return float(image.shape[1]) / _WIDTH


def _to_pixels(values: NDArray[np.floating]) -> Pixels:
    pixels: Pixels = np.rint(values).clip(0, 255).astype(np.uint8)
    return pixels
