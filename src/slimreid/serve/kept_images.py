"""Images of rows: those that were sent are kept beside the gallery, so that features can be computed anew.

A file is called by the hash of its content: the same image is there once, and no name comes from a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image

from slimreid.data.images.decode import MAX_BYTES, crop_box
from slimreid.data.images.pixels import as_pixels
from slimreid.data.manifest import ImageRef
from slimreid.files import atomic_write, open_regular
from slimreid.gallery.enrolment.images import encode_jpeg
from slimreid.gallery.store.contract import Store, row_chunks
from slimreid.gallery.store.rows import Filter, Row
from slimreid.serve.decoding.pool import DecodePool

SIDE = 512
"""Pixels of the longer side at most."""

_SUFFIXES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"BM", ".bmp"),
    (b"RIFF", ".webp"),
    (b"II", ".tif"),
    (b"MM", ".tif"),
)


def keep_images(folder: Path, images: Mapping[str, bytes]) -> dict[str, ImageRef]:
    """Write the images {modality: content} of a sample that are not there yet; where they are."""
    refs = {}
    for name, content in images.items():
        digest = hashlib.sha256(content).hexdigest()
        suffix = next((ending for start, ending in _SUFFIXES if content.startswith(start)), ".img")
        path = folder / digest[:2] / (digest + suffix)
        if not path.is_file():
            with atomic_write(path) as file:
                file.write(content)
        refs[name] = ImageRef(path.as_posix())
    return refs


def erase_images(folder: Path, store: Store, rows: Iterable[Row]) -> None:
    """Erase the images of rows that were forgotten, unless another row uses them too."""
    paths = {ref.path for row in rows for ref in row.files.values()}
    ours = {path for path in paths if Path(path).is_relative_to(folder)}
    if not ours:
        return
    for others in row_chunks(store, Filter(removed=None)):
        ours -= {ref.path for row in others for ref in row.files.values()}
    for path in ours:
        Path(path).unlink(missing_ok=True)


def larger_picture(decoders: DecodePool, ref: ImageRef) -> bytes:
    """A JPEG of an image file; raises `DataError` where it cannot be read."""
    path = Path(ref.path)
    with open_regular(path, MAX_BYTES) as file:
        content = file.read(MAX_BYTES)
    name = path.name
    pixels = as_pixels(decoders.decode({name: content}).images[name], ref.window)
    picture = Image.fromarray(crop_box(pixels, ref.box, path))
    picture.thumbnail((SIDE, SIDE))
    return encode_jpeg(picture)
