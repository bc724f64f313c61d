"""What of its images a row keeps besides its feature: a thumbnail."""

from __future__ import annotations

import io
from collections.abc import Mapping

from PIL import Image

from slimreid.arrays import Pixels

THUMBNAIL = 96
"""Pixels, height of a thumbnail."""
_QUALITY = 80


def make_thumbnail(pixels: Mapping[str, Pixels]) -> bytes:
    """A JPEG with the modalities of a sample side by side, all as wide as the first."""
    first = next(iter(pixels.values()))
    height = min(THUMBNAIL, first.shape[0])
    width = max(1, min(2 * THUMBNAIL, round(first.shape[1] * height / first.shape[0])))
    sheet = Image.new("RGB", (width * len(pixels), height))
    for number, image in enumerate(pixels.values()):
        small = Image.fromarray(image).resize((width, height), Image.Resampling.BOX)
        sheet.paste(small, (number * width, 0))
    return encode_jpeg(sheet, _QUALITY)


def encode_jpeg(image: Image.Image, quality: int = 90) -> bytes:
    """The content of a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def split_thumbnail(content: bytes, modalities: tuple[str, ...]) -> dict[str, Image.Image]:
    """The pictures in a thumbnail, per modality; empty where there is none."""
    if not content:
        return {}
    with Image.open(io.BytesIO(content), formats=("JPEG",)) as opened:
        sheet = opened.convert("RGB")
    width = sheet.width // len(modalities)
    return {
        name: sheet.crop((number * width, 0, (number + 1) * width, sheet.height))
        for number, name in enumerate(modalities)
    }
