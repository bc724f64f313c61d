"""The two sides of a search: which rows of a dataset are queries, which the gallery, and who they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.errors import DataError

Part = Literal["val", "test"]
SPLITS_OF: dict[Part, tuple[Split, ...]] = {"val": ("val",), "test": ("query", "gallery")}


@dataclass(frozen=True, eq=False)
class Side:
    """The queries or the gallery of an evaluation, n samples."""

    rows: NDArray[np.int64]
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


def side_of(manifest: Manifest, rows: NDArray[np.int64]) -> Side:
    """The samples of a manifest at `rows` (n,) as a side of an evaluation."""
    samples = [manifest.samples[row] for row in rows.tolist()]
    return Side(
        rows=rows,
        identities=np.array([s.identity for s in samples], dtype=np.str_),
        cameras=np.array([s.camera for s in samples], dtype=np.str_),
        images=tuple({name: image.path for name, image in s.images.items()} for s in samples),
    )


def parts_of(manifest: Manifest) -> tuple[Part, ...]:
    """The parts of a dataset that can be evaluated: `val`, and `test` if it has both queries and gallery."""
    return tuple(part for part, splits in SPLITS_OF.items() if all(manifest.select(s) for s in splits))


def files_of(sample: Sample) -> str:
    """The same for two rows of a manifest that are the same images."""
    return repr(sorted((name, image.path, image.box) for name, image in sample.images.items()))


def retrieval_labels(
    samples: Sequence[Sample], query: Iterable[int], gallery: Iterable[int], protocol: str
) -> dict[str, Any]:
    """The labels that `evaluate_retrieval` takes, as arguments, with the protocol; rows of both sides.

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
            labels[f"{side}_index"] = np.array([files_of(s) for s in chosen], dtype=np.str_)
    return labels
