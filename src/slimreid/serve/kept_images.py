"""Images that were sent and enrolled, kept beside the gallery so that features can be computed anew.

A file is called by the hash of its content: the same image is there once, and no name comes from a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from slimreid.data.manifest import ImageRef
from slimreid.files import atomic_write
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter, Row

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
    after = 0
    while others := store.rows(Filter(removed=None), 4096, after):
        ours -= {ref.path for row in others for ref in row.files.values()}
        after = others[-1].id
    for path in ours:
        Path(path).unlink(missing_ok=True)
