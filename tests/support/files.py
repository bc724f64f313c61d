"""Small files for tests: images and tables."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, size: tuple[int, int] = (8, 16), seed: int | None = None) -> Path:
    """A small image file (width, height), made of smooth noise that depends on the file's name or the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(path.name.encode()) if seed is None else seed)
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def write_csv(path: Path, header: str, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path
