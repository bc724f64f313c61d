"""Which camera finds in which: mAP for every pair of query and gallery camera."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import EncodedLabels, Features, Ints, Labels, check_sizes
from slimreid.evaluation.metrics.ranking import PositiveIndex, Positives, rank_matches, sort_values
from slimreid.evaluation.metrics.retrieval import figures_of_ranks, score_chunks, score_source


@dataclass(frozen=True, eq=False)
class CameraPairs:
    """mAP of queries of camera a (rows, A) when only gallery items of camera b (columns, B) are searched."""

    query_cameras: NDArray[np.generic]
    gallery_cameras: NDArray[np.generic]
    map: NDArray[np.float64]
    """(A, B), 0 to 1; NaN where no query has a right answer."""
    queries: Ints
    """(A, B): the queries behind each figure."""

    def __post_init__(self) -> None:
        shape = (len(self.query_cameras), len(self.gallery_cameras))
        if self.map.shape != shape or self.queries.shape != shape:
            raise DataError(f"map and queries must be {shape}, not {self.map.shape} and {self.queries.shape}")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: NaN becomes None."""
        return {
            "query_cameras": self.query_cameras.tolist(),
            "gallery_cameras": self.gallery_cameras.tolist(),
            "map": [[None if np.isnan(v) else v for v in row] for row in self.map.tolist()],
            "queries": self.queries.tolist(),
        }


def camera_pair_map(
    query_features: Features, gallery_features: Features, labels: Labels, *, normalize: bool = True
) -> CameraPairs:
    """Evaluate every camera's queries against every camera's part of the gallery, in one pass.

    Features and errors as in `evaluate_retrieval`. Under protocol `camera` a camera never finds in itself.
    """
    source = score_source(query_features, gallery_features, normalize)
    check_sizes(labels, source.shape)
    pairs = PairMeasure(labels)
    for rows, scores, positives in score_chunks(source, PositiveIndex(labels.encoded)):
        pairs.add(rows, scores, positives)
    return pairs.result()


class PairMeasure:
    """mAP per pair of cameras as the scores go by; a `Measure`."""

    def __init__(self, labels: Labels) -> None:
        query, gallery = labels.cameras()
        self._query_names, query_camera = np.unique(query, return_inverse=True)
        self._gallery_names, gallery_camera = np.unique(gallery, return_inverse=True)
        self._camera: Ints = query_camera.reshape(-1)
        cameras = range(len(self._gallery_names))
        self._columns = [np.flatnonzero(gallery_camera.reshape(-1) == b) for b in cameras]
        self._indices = [PositiveIndex(_restrict(labels.encoded, c)) for c in self._columns]
        self._precision = np.full((len(query), len(self._columns)), np.nan)

    def add(self, rows: slice, scores: Tensor, positives: Positives) -> None:
        """Rank each camera's part of the gallery for these queries."""
        for b, (own, index) in enumerate(zip(self._columns, self._indices, strict=True)):
            of_camera = scores[:, torch.from_numpy(own).to(scores.device)]
            ranks = rank_matches(of_camera, sort_values(of_camera), index.positives(rows.start, rows.stop))
            self._precision[rows, b] = figures_of_ranks(ranks)[0]

    def result(self) -> CameraPairs:
        """The table, once all queries are in."""
        grouped = _group(self._precision, self._camera, len(self._query_names))
        return CameraPairs(self._query_names, self._gallery_names, *grouped)


def _restrict(labels: EncodedLabels, columns: Ints) -> EncodedLabels:
    places = labels.gallery_places
    return replace(
        labels,
        gallery_ids=labels.gallery_ids[columns],
        gallery_places=None if places is None else places[columns],
    )


def _group(precision: NDArray[np.float64], camera: Ints, cameras: int) -> tuple[NDArray[np.float64], Ints]:
    """Means (A, B) over the queries of each camera that have a figure, and their number."""
    there = ~np.isnan(precision)
    total = np.zeros((cameras, precision.shape[1]))
    number = np.zeros((cameras, precision.shape[1]), dtype=np.int64)
    np.add.at(total, camera, np.where(there, precision, 0.0))
    np.add.at(number, camera, there)
    mean = np.full(total.shape, np.nan)
    np.divide(total, number, out=mean, where=number > 0)
    return mean, number
