"""From an image file to an 8-bit RGB array.

Values with more than 8 bits (thermal cameras: `.tif`, `.png`) need a window. A fixed one, `low high`
from the manifest or the config, keeps absolute heat: the same temperature is the same grey in every
image. Without one, the 1st and 99th percentile of each image become black and white, which shows the
shapes but forgets the temperature. Orientation tags (EXIF) are not applied: all spectra of a sample
must be stored upright.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, UnidentifiedImageError

from slimreid.data.manifest import Box, ImageRef, Window
from slimreid.errors import DataError

Pixels = npt.NDArray[np.uint8]

MAX_PIXELS = 89_478_485
"""Larger images are refused: a small file can claim to be huge (Pillow's own limit)."""

ROBUST_PERCENTILES = (1.0, 99.0)
_JPEG_START = b"\xff\xd8\xff"


def read_image(
    path: Path, box: Box | None = None, window: Window | None = None, at_least: tuple[int, int] | None = None
) -> Pixels:
    """Read an image as (H, W, 3) uint8; grey is repeated to three channels.

    `at_least` (height, width) allows a JPEG to be decoded at half size or less while it stays at least
    that large; this is about three times faster than decoding it whole and resizing.
    Raises `DataError` naming the path when the file is absent, empty, corrupt, too large, or smaller
    than its box.
    """
    return crop_box(decode_file(path, window, None if box else at_least), box, path)


def read_images(
    images: Mapping[str, ImageRef],
    root: Path,
    windows: Mapping[str, Window] | None = None,
    at_least: tuple[int, int] | None = None,
) -> dict[str, Pixels]:
    """Read all images of a sample; a file that holds several of them (a strip) is decoded once."""
    decoded: dict[tuple[str, Window | None], Pixels] = {}
    result = {}
    for name, image in images.items():
        window = image.window or (windows or {}).get(name)
        key = (image.path, window)
        path = root / image.path
        if key not in decoded:
            decoded[key] = decode_file(path, window, None if image.box else at_least)
        result[name] = crop_box(decoded[key], image.box, path)
    return result


def decode_file(path: Path, window: Window | None = None, at_least: tuple[int, int] | None = None) -> Pixels:
    """Decode a whole file to (H, W, 3) uint8; raises `DataError` with the path."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; correct the path") from None
    except (OSError, ValueError) as error:  # ValueError: a character no path can have
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}); correct the path") from None
    if not data:
        raise DataError(f"{path}: the file is empty (zero bytes); copy it again or drop the row")
    try:
        if data.startswith(_JPEG_START) and window is None:
            return _decode_jpeg(data, at_least)
        return _decode_other(data, window)
    except UnidentifiedImageError:
        raise DataError(f"{path}: not an image that can be read; copy it again or drop the row") from None
    except (ValueError, OSError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: the image is corrupt or refused ({error}); copy it again") from None


def _decode_jpeg(data: bytes, at_least: tuple[int, int] | None) -> Pixels:
    height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    _refuse_huge(width, height)
    if space not in ("RGB", "YCbCr", "Gray"):  # CMYK and its relatives
        return _decode_other(data, None)
    if at_least is None:
        return np.asarray(simplejpeg.decode_jpeg(data, "RGB"))
    return np.asarray(simplejpeg.decode_jpeg(data, "RGB", min_height=at_least[0], min_width=at_least[1]))


def _decode_other(data: bytes, window: Window | None) -> Pixels:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # we refuse at that size ourselves
        image = Image.open(io.BytesIO(data))
        _refuse_huge(*image.size)
        image.load()
    return image_pixels(image, window)


def image_pixels(image: Image.Image, window: Window | None = None) -> Pixels:
    """A decoded image as (H, W, 3) uint8; deep values, and any with a window, are mapped to grey."""
    deep = image.mode in ("I", "F") or image.mode.startswith("I;16")
    if not deep and window is None:
        return np.array(image.convert("RGB"))
    values = np.asarray(image if deep else image.convert("L"), dtype=np.float32)
    grey = apply_window(values, window)
    return np.repeat(grey[..., None], 3, axis=-1)


def _refuse_huge(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width}×{height} pixels are more than the {MAX_PIXELS:,} allowed")


def apply_window(values: npt.NDArray[np.float32], window: Window | None) -> Pixels:
    """Map (H, W) values to 8 bits: `window` = (low, high) to (0, 255), or robust percentiles if None."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        raise ValueError("no finite value in the image")
    low, high = window or tuple(np.percentile(finite, ROBUST_PERCENTILES))
    if high <= low:  # a constant image has no contrast to keep
        return np.zeros(values.shape, np.uint8)
    scaled = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) * (255.0 / (high - low))
    grey: Pixels = np.rint(scaled.clip(0, 255)).astype(np.uint8)
    return grey


def crop_box(image: Pixels, box: Box | None, path: Path) -> Pixels:
    """The part of `image` inside `box`; raises `DataError` when the box reaches outside."""
    if box is None:
        return image
    left, top, right, bottom = box
    height, width = image.shape[:2]
    if right > width or bottom > height:
        raise DataError(
            f"{path}: the box {left} {top} {right} {bottom} reaches outside the image of "
            f"{width}×{height}; correct the box in the manifest"
        )
    return image[top:bottom, left:right]


def image_size(path: Path) -> tuple[int, int]:
    """(width, height) from the file's header alone; raises `DataError` with the path."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                width, height = image.size
                return int(width), int(height)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: not an image that can be read ({error})") from None
