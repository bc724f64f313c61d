"""The two sides of a search: which rows of a dataset are queries, which the gallery, and who they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Ints
from slimreid.data.manifest import Manifest, Protocol, Sample, Split
from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.inference.features.data import ModelData

Part = Literal["val", "test"]
SPLITS_OF: dict[Part, tuple[Split, ...]] = {"val": ("val",), "test": ("query", "gallery")}


@dataclass(frozen=True, eq=False)
class Side:
    """The queries or the gallery of an evaluation, n samples."""

    rows: Ints
    """(n,): where they stand in `manifest.samples`."""
    identities: NDArray[np.str_]
    cameras: NDArray[np.str_]
    images: tuple[dict[str, str], ...]
    """Per sample {modality: path relative to the manifest's folder}."""

    def __post_init__(self) -> None:
        n = len(self.rows)
        for name in ("identities", "cameras", "images"):
            if len(getattr(self, name)) != n:
                raise DataError(f"{name} has {len(getattr(self, name))} entries for {n} samples")

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; paths are one column per modality, None where a sample lacks it."""
        names = list(dict.fromkeys(name for images in self.images for name in images))
        return {
            "row": self.rows.tolist(),
            "identity": self.identities.tolist(),
            "camera": self.cameras.tolist(),
            "images": {name: [images.get(name) for images in self.images] for name in names},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Side:
        """The side that `to_dict` described."""
        rows, columns = np.array(values["row"], dtype=np.int64), values["images"].items()
        identities, cameras = (np.array(values[key], dtype=np.str_) for key in ("identity", "camera"))
        images = [{m: paths[i] for m, paths in columns if paths[i] is not None} for i in range(len(rows))]
        return cls(rows, identities, cameras, tuple(images))


def select_part(data: ModelData, part: Part) -> tuple[ModelData, Ints]:
    """The rows of a part, and where they stand in the whole manifest; raises `DataError` if it is absent."""
    manifest = data.manifest
    absent = [split for split in SPLITS_OF[part] if not manifest.select(split)]
    if absent:
        cure = f"mark rows as {' and '.join(absent)}"
        if there := parts_of(manifest):
            cure += f", or use --split {there[0]}"
        raise DataError(f"{data.path}: no {' and '.join(absent)} rows, so there is nothing to search; {cure}")
    rows = np.array([i for i, s in enumerate(manifest.samples) if s.split in SPLITS_OF[part]], dtype=np.int64)
    chosen = manifest.with_samples(manifest.samples[i] for i in rows.tolist())
    return replace(data, manifest=chosen), rows


def side_rows(samples: Sequence[Sample], part: Part, among: Iterable[int] | None = None) -> tuple[Ints, Ints]:
    """Where the queries and the gallery of a part stand in `samples`; `among`: no other rows than these."""
    rows = list(range(len(samples)) if among is None else among)
    sides = [[i for i in rows if samples[i].split == split] for split in SPLITS_OF[part]]
    return np.array(sides[0], np.int64), np.array(sides[-1], np.int64)


def side_of(manifest: Manifest, rows: Ints) -> Side:
    """The samples of a manifest at `rows` (n,) as a side of an evaluation."""
    samples = [manifest.samples[row] for row in rows.tolist()]
    identities = np.array([s.identity for s in samples], dtype=np.str_)
    cameras = np.array([s.camera for s in samples], dtype=np.str_)
    images = tuple({name: image.path for name, image in s.images.items()} for s in samples)
    return Side(rows, identities, cameras, images)


def parts_of(manifest: Manifest) -> tuple[Part, ...]:
    """The parts of a dataset that can be evaluated: `val`, and `test` if it has both queries and gallery."""
    return tuple(part for part, splits in SPLITS_OF.items() if all(manifest.select(s) for s in splits))


def retrieval_labels(
    samples: Sequence[Sample], query: Iterable[int], gallery: Iterable[int], protocol: Protocol
) -> Labels:
    """The labels of the rows of both sides.

    Under protocol `none` a sample is known by its files, so that a query does not find itself.
    """
    labels: dict[str, Any] = {"protocol": protocol}
    for side, rows in (("query", query), ("gallery", gallery)):
        chosen = [samples[row] for row in rows]
        labels[f"{side}_ids"] = np.array([s.identity for s in chosen], dtype=np.str_)
        labels[f"{side}_cameras"] = np.array([s.camera for s in chosen], dtype=np.str_)
        if protocol == "scene":
            labels[f"{side}_scenes"] = np.array([s.scene for s in chosen], dtype=np.str_)
        if protocol == "none":
            labels[f"{side}_index"] = np.array([s.files_key for s in chosen], dtype=np.str_)
    return Labels(**labels)
