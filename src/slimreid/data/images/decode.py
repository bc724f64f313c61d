"""From an image file to an 8-bit RGB array: the one place where pictures are opened.

Only regular files are read, and only as JPEG, PNG, TIFF, BMP or WebP, whatever their name says; size in
bytes and in pixels is checked before anything is read or decoded. What comes out is an array of pixels
or a `DataError` with the path. Orientation tags (EXIF) are not applied: all modalities of a sample must
be stored upright.

Thermal cameras store 16 bits or floating point. A fixed window, `low high` from the manifest or the
config, keeps absolute heat: the same temperature is the same grey in every image. Without one, the 1st
and 99th percentile of each image become black and white, which shows the shapes but forgets the
temperature.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from slimreid.arrays import Floats, Pixels
from slimreid.data.manifest import Box, ImageRef, Window
from slimreid.errors import DataError, SlimReIDWarning
from slimreid.files import open_regular

ROBUST_PERCENTILES = (1.0, 99.0)
_STRIPE = 1 << 20  # pixels mapped at once, so that large images need little memory beyond their own

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP")
"""Formats that are opened, by Pillow's names; others could start programs or are not safe to decode."""

MAX_BYTES = 1 << 28
"""Larger files are refused: no image within `MAX_PIXELS` needs as much."""

MAX_PIXELS = 50_000_000
"""Larger images are refused: a small file can claim to be huge."""

MAX_SCANS = 100
"""JPEG files with more passes over the image are refused: ordinary ones have about ten."""

_JPEG_START, _JPEG_SCAN = b"\xff\xd8\xff", b"\xff\xda"


@dataclass(frozen=True)
class ImageInfo:
    """What the header of an image file says."""

    width: int
    height: int
    deep: bool
    """More than 8 bits per value."""
    several: bool
    """More than one page or frame."""
    file_size: int
    """Size of the file in bytes."""


def read_image(
    path: Path, box: Box | None = None, window: Window | None = None, at_least: tuple[int, int] | None = None
) -> Pixels:
    """Read an image as (H, W, 3) uint8; grey is repeated to three channels.

    `at_least` (height, width) allows a JPEG to be decoded at half size or less while it stays at least
    that large; this is about three times faster than decoding it whole and resizing.
    Raises `DataError` naming the path when the file is absent, empty, corrupt, too large, of another
    format, not a regular file, or smaller than its box.
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


def read_pictures(
    images: Mapping[str, ImageRef], root: Path, windows: Mapping[str, Window] | None = None
) -> dict[str, Image.Image]:
    """All images of a sample, for drawing."""
    return {name: Image.fromarray(pixels) for name, pixels in read_images(images, root, windows).items()}


def decode_file(path: Path, window: Window | None = None, at_least: tuple[int, int] | None = None) -> Pixels:
    """Decode a whole file to (H, W, 3) uint8; raises `DataError` with the path.

    Of several pages or frames the first is taken, with a `SlimReIDWarning`.
    """
    return decode_bytes(read_content(path), path, window, at_least)


def read_content(path: Path) -> bytes:
    """The content of an image file; raises `DataError` with the path for none, an empty or a huge one."""
    with _open_file(path) as file:
        return file.read(MAX_BYTES)


def decode_bytes(
    data: bytes, path: Path | str, window: Window | None = None, at_least: tuple[int, int] | None = None
) -> Pixels:
    """The same for the content of a file; `path` says where it is from."""
    with _decoding(path):
        if data.startswith(_JPEG_START) and window is None:
            return _decode_jpeg(data, at_least)
        image = _open(io.BytesIO(data))
        image.load()
        pixels = image_pixels(image, window)
    if _several(image):
        warnings.warn(f"{path}: {several_message(image.format)}", SlimReIDWarning, stacklevel=2)
    return pixels


def decode_untrusted(data: bytes, name: str, most_pixels: int | None = None) -> NDArray[Any]:
    """Decode the content of a file to (H, W, 3) uint8, or (H, W) as it is where it has more bits.

    Of several pages or frames the first is taken. Raises `DataError` with `name`.
    """
    if not data:
        raise DataError(f"{name}: the file is empty (zero bytes); send it again")
    with _decoding(name):
        if data.startswith(_JPEG_START):
            return _decode_jpeg(data, None, most_pixels)
        image = _open(io.BytesIO(data), most_pixels)
        image.load()
        if not is_deep(image.mode):
            return image_pixels(image)
        values = np.asarray(image)
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def image_info(path: Path) -> ImageInfo:
    """What the file's header says, without decoding; raises `DataError` with the path."""
    with _open_file(path) as file, _decoding(path):
        image = _open(file)
        file_size = os.fstat(file.fileno()).st_size
        return ImageInfo(image.width, image.height, is_deep(image.mode), _several(image), file_size)


def several_message(kind: str | None = None) -> str:
    """How a file with several pages or frames is spoken of."""
    return f"the {kind or 'image'} file has several pages or frames, of which only the first is used"


def crop_box(image: Pixels, box: Box | None, path: Path | str) -> Pixels:
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


def _open_file(path: Path) -> BinaryIO:
    file = open_regular(path, MAX_BYTES)
    if os.fstat(file.fileno()).st_size == 0:
        file.close()
        raise DataError(f"{path}: the file is empty (zero bytes); copy it again or drop the row")
    return file


@contextmanager
def _decoding(path: Path | str) -> Iterator[None]:
    """Name the file in whatever goes wrong while a library decodes it.

    Decoders meet damaged headers with any kind of exception (KeyError, struct.error, ...), so all count.
    """
    try:
        yield
    except UnidentifiedImageError:
        raise DataError(
            f"{path}: not a JPEG, PNG, TIFF, BMP or WebP image; convert it, copy it again or drop the row"
        ) from None
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: the image is corrupt or refused ({reason}); copy it again") from None


def _open(file: BinaryIO, most_pixels: int | None = None) -> Image.Image:
    image = Image.open(file, formats=FORMATS)
    _refuse_huge(*image.size, most_pixels)
    return image


def _several(image: Image.Image) -> bool:
    # Phones add a preview or depth map to a JPEG file (MPO); the photograph itself is one.
    return bool(getattr(image, "is_animated", False)) and image.format != "MPO"


def _decode_jpeg(data: bytes, at_least: tuple[int, int] | None, most_pixels: int | None = None) -> Pixels:
    height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    _refuse_huge(width, height, most_pixels)
    if data.count(_JPEG_SCAN) > MAX_SCANS:
        raise ValueError(f"more than {MAX_SCANS} scans")
    if space not in ("RGB", "YCbCr", "Gray"):  # CMYK and its relatives
        image = _open(io.BytesIO(data))
        image.load()
        return image_pixels(image)
    if at_least is None:
        return np.asarray(simplejpeg.decode_jpeg(data, "RGB"))
    return np.asarray(simplejpeg.decode_jpeg(data, "RGB", min_height=at_least[0], min_width=at_least[1]))


def _refuse_huge(width: int, height: int, most_pixels: int | None) -> None:
    most_pixels = most_pixels or MAX_PIXELS
    if width * height > most_pixels:
        raise ValueError(f"{width}×{height} pixels are more than the {most_pixels:,} allowed")


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


def apply_window(values: Floats, window: Window | None) -> Pixels:
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
        raise ValueError(f"values from {low:g} to {high:g} are not an image; give a window")
    rows = max(1, _STRIPE // values.shape[1])
    for top in range(0, len(values), rows):
        part = np.nan_to_num(values[top : top + rows], nan=low, posinf=high, neginf=low)
        with np.errstate(over="ignore"):  # far outside the window is black or white all the same
            scaled = (part - low) * (255.0 / (high - low))
        grey[top : top + rows] = np.rint(scaled.clip(0, 255))
    return grey
