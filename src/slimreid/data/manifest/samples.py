"""What a dataset consists of: images, samples, splits, protocols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

Split = Literal["train", "val", "query", "gallery"]
Protocol = Literal["camera", "scene", "none"]
Box = tuple[int, int, int, int]
Window = tuple[float, float]

SPLITS: tuple[Split, ...] = get_args(Split)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
MANIFEST_NAME = "manifest.csv"
GROUP_COLUMN, TIME_COLUMN = "x_group", "x_time"
"""Columns that enrolling reads: tracklet of a sample; when it was seen (ISO 8601, or seconds since 1970)."""


@dataclass(frozen=True)
class ImageRef:
    """Where one image is: a file, and optionally the part of it and the range of values that count."""

    path: str
    box: Box | None = None
    window: Window | None = None


@dataclass(frozen=True)
class Sample:
    """One row: an object seen once, in one or more modalities."""

    split: Split
    identity: str
    camera: str
    scene: str
    images: Mapping[str, ImageRef]
    extras: Mapping[str, str] = field(default_factory=dict)
    row: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Manifest:
    """A whole dataset: its rows, the modalities they may have, and the folder paths start from."""

    samples: tuple[Sample, ...]
    modalities: tuple[str, ...]
    root: Path = field(compare=False)
    protocol: Protocol = "camera"
    origin: str = ""

    def select(self, *splits: Split) -> tuple[Sample, ...]:
        """Rows of the given splits, in order."""
        return tuple(s for s in self.samples if s.split in splits)

    def file(self, image: ImageRef) -> Path:
        """The file behind an image."""
        return self.root / image.path

    def with_samples(self, samples: Iterable[Sample]) -> Manifest:
        """The same dataset with other rows."""
        return replace(self, samples=tuple(samples))
