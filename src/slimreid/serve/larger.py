"""Pictures of rows that are larger than their thumbnails, from the files the gallery names."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from slimreid.data.images.decode import MAX_BYTES, crop_box
from slimreid.data.images.pixels import as_pixels
from slimreid.data.manifest import ImageRef
from slimreid.files import open_regular
from slimreid.serve.decoding.pool import DecodePool

SIDE = 512
"""Pixels of the longer side at most."""


def larger_picture(decoders: DecodePool, ref: ImageRef) -> bytes:
    """A JPEG of an image file; raises `DataError` where it cannot be read."""
    path = Path(ref.path)
    with open_regular(path, MAX_BYTES) as file:
        content = file.read(MAX_BYTES)
    name = path.name
    pixels = as_pixels(decoders.decode({name: content}).images[name], ref.window)
    picture = Image.fromarray(crop_box(pixels, ref.box, path))
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
