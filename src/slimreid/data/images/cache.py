"""Caches of decoded and resized images, so that later epochs do not decode again."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from slimreid.arrays import Pixels
from slimreid.data.manifest import ImageRef


class ImageCache(Protocol):
    """Keeps (3, H, W) uint8 images by key."""

    def get(self, key: str, make: Callable[[], Pixels]) -> Pixels:
        """The image under `key`, made by `make` the first time."""
        ...


class RamCache:
    """Keeps images in memory; each worker process fills its own, so use few workers with it."""

    def __init__(self) -> None:
        self.images: dict[str, Pixels] = {}

    def get(self, key: str, make: Callable[[], Pixels]) -> Pixels:
        """The image under `key`, made by `make` the first time."""
        if key not in self.images:
            self.images[key] = make()
        return self.images[key]


class DiskCache:
    """Keeps images as raw files in a folder that all workers and later runs share."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self.folder = folder
        self.shape = (3, *size)
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, make: Callable[[], Pixels]) -> Pixels:
        """The image under `key`, made by `make` the first time or when its file is damaged."""
        path = self.folder / key[:2] / f"{key}.raw"
        try:
            pixels = np.fromfile(path, np.uint8)
        except FileNotFoundError:
            pixels = np.empty(0, np.uint8)
        if pixels.size == np.prod(self.shape):
            return pixels.reshape(self.shape)
        image = make()
        path.parent.mkdir(exist_ok=True)
        # No fsync: a cache that is lost is made again, and a short file is noticed above.
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image.tobytes())
        Path(name).replace(path)
        return image


def cache_key(root: Path, image: ImageRef, *settings: object) -> str:
    """Key that changes when the file, its box, its window or the settings change."""
    path = root / image.path
    try:
        state = path.stat()
        version = (state.st_mtime_ns, state.st_size)
    except OSError:
        version = (0, 0)  # reading it will say what is wrong
    text = repr((str(path.resolve()), version, image.box, image.window, *settings))
    return hashlib.sha256(text.encode()).hexdigest()[:40]
