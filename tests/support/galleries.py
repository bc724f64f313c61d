"""Small galleries: rows with random features, and a model of colours that needs no training."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.data.images.pixels import as_pixels
from slimreid.data.manifest import ImageRef
from slimreid.gallery.store.rows import ModelInfo, NewRow
from slimreid.inference.embed import as_samples
from slimreid.inference.similarity import Similarity
from support.files import write_image

NAMES = ("rgb", "nir", "tir")
WIDTH = 8
"""Numbers of a block."""
D = WIDTH * len(NAMES)


def make_similarity(scaled: bool = True, seed: int = 0) -> Similarity:
    """One block per modality; with a scale that differs between pairs of subsets."""
    blocks = tuple((name,) for name in NAMES)
    plain = Similarity(NAMES, blocks)
    if not scaled:
        return plain
    S = len(plain.subsets)
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.2, (S, S))
    table = np.stack([low, low + rng.uniform(0.3, 0.6, (S, S))], axis=2)
    table[~plain.shares] = np.nan
    return Similarity(NAMES, blocks, np.maximum(table, np.swapaxes(table, 0, 1)).astype(np.float32))


def make_info(fingerprint: str = "one", scaled: bool = True) -> ModelInfo:
    return ModelInfo(fingerprint, "both", D, make_similarity(scaled))


def make_rows(count: int, seed: int = 0, identities: int = 3, missing: bool = True) -> list[NewRow]:
    """Rows with everything; every third lacks modalities."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        seen = NAMES if not missing or number % 3 else NAMES[number % 2 :: 2]
        feature = rng.normal(size=D).astype(np.float32)
        feature *= np.repeat([name in seen for name in NAMES], WIDTH)
        rows.append(
            NewRow(
                feature / np.linalg.norm(feature),
                seen,
                identity=f"person {number % identities}" if number % 5 else "",
                group=f"track {number // 4}",
                camera=f"cam{number % 2}",
                time=1000.0 + number if number % 4 else None,
                files={name: ImageRef(f"/images/{seed}/{number}_{name}.png", (0, 0, 4, 8)) for name in seen},
                hash=hashlib.sha256(f"{seed} {number}".encode()).hexdigest(),
                quality=0.5 + number / 1000,
                reasons=("rgb: blurred",) if number % 7 == 0 else (),
                thumbnail=b"JPEG " + bytes([number % 256]) * 20,
            )
        )
    return rows


def row_fields(row: Any) -> dict[str, Any]:
    """What a new row and a row that was read back have in common."""
    names = ("identity", "group", "modalities", "camera", "time", "hash", "quality", "reasons")
    return {**{name: getattr(row, name) for name in names}, "files": dict(row.files)}


@dataclass
class ColourModel:
    """Embeds an image by the mean colours of its quarters; `shift` makes another model of it."""

    shift: float = 0.0
    modalities: tuple[str, ...] = NAMES
    source: str = ""
    identities: tuple[str, ...] = ()
    calls: list[int] = field(default_factory=list)
    """Samples of each call."""

    @property
    def feature_fingerprint(self) -> str:
        return f"colours {self.shift}"

    def similarity(self, feature: str = "both") -> Similarity:
        return make_similarity(scaled=False)

    def embed(self, images: Any, **_: Any) -> np.ndarray:
        samples = as_samples(images, self.modalities)
        self.calls.append(len(samples))
        features = np.zeros((len(samples), D), dtype=np.float32)
        for n, sample in enumerate(samples):
            for m, name in enumerate(NAMES):
                if name in sample:
                    features[n, m * WIDTH : (m + 1) * WIDTH] = self._block(as_pixels(sample[name]))
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    def _block(self, pixels: np.ndarray) -> np.ndarray:
        height, width = (max(1, side // 2) for side in pixels.shape[:2])
        quarters = [pixels[y : y + height, x : x + width] for y in (0, height) for x in (0, width)]
        values = np.concatenate([part.reshape(-1, 3).mean(axis=0) for part in quarters if part.size])[:WIDTH]
        return np.resize(values / 255 - 0.5 + self.shift * np.arange(len(values)), WIDTH)


def write_people(folder: Path, names: Sequence[str] = ("anna", "ben"), images: int = 2) -> Path:
    """A folder per identity, each image in rgb and tir."""
    for i, name in enumerate(names):
        for number in range(images):
            for m, modality in enumerate(("rgb", "tir")):
                path = folder / name / f"{number}_{modality}.png"
                write_image(path, (32, 64), seed=100 * i + 10 * m + number)
    return folder
