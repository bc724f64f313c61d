"""A sample known by its content: one hash over its files, boxes and windows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from slimreid.data.images.decode import MAX_BYTES
from slimreid.data.manifest import ImageRef
from slimreid.files import open_regular


def content_hash(images: Mapping[str, ImageRef]) -> str:
    """SHA-256 over modalities, files, boxes and windows of a sample; raises `DataError` naming the file."""
    contents = {}
    for ref in images.values():
        if ref.path not in contents:
            with open_regular(Path(ref.path), MAX_BYTES) as file:
                contents[ref.path] = file.read()
    return hash_of(images, contents)


def hash_of(images: Mapping[str, ImageRef], contents: Mapping[str, bytes]) -> str:
    """What `content_hash` gives for files that were read already: {path: content}."""
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    parts = {name: f"{digests[ref.path]}\0{ref.box}\0{ref.window}" for name, ref in images.items()}
    text = "".join(f"{name}\0{parts[name]}\0" for name in sorted(parts))
    return hashlib.sha256(text.encode()).hexdigest()


def bytes_hash(contents: Mapping[str, bytes]) -> str:
    """What `content_hash` gives for whole files {modality: content}."""
    return hash_of({name: ImageRef(name) for name in contents}, contents)
