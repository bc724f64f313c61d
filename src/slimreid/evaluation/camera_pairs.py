"""Which camera finds in which: mAP for every pair of query and gallery camera."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.errors import DataError
from slimreid.evaluation.inputs import Features, Ints, Labels, RetrievalLabels, as_labels, check_labels
from slimreid.evaluation.metrics import CHUNK_MEGABYTES, figures_of_ranks, score_chunks, score_source
from slimreid.evaluation.protocols import PartnerIndex
from slimreid.evaluation.ranking import ignore_partners, rank_right_answers, sort_values
from slimreid.evaluation.rerank import KReciprocal


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
    query_features: Features,
    gallery_features: Features,
    query_ids: Labels,
    gallery_ids: Labels,
    query_cameras: Labels,
    gallery_cameras: Labels,
    query_scenes: Labels | None = None,
    gallery_scenes: Labels | None = None,
    protocol: str = "camera",
    *,
    query_index: Labels | None = None,
    gallery_index: Labels | None = None,
    normalize: bool = True,
    rerank: KReciprocal | None = None,
    chunk_megabytes: float = CHUNK_MEGABYTES,
) -> CameraPairs:
    """Evaluate every camera's queries against every camera's part of the gallery, in one pass.

    Arguments and errors as in `evaluate_retrieval`. Under protocol `camera` a camera never finds in itself.
    """
    source = score_source(query_features, gallery_features, normalize, rerank, chunk_megabytes)
    labels = check_labels(
        protocol,
        source.shape,
        ids=(query_ids, gallery_ids),
        cameras=(query_cameras, gallery_cameras),
        scenes=(query_scenes, gallery_scenes),
        index=(query_index, gallery_index),
    )
    Q, G = source.shape
    query_names, query_camera = np.unique(as_labels(query_cameras, "query_cameras", Q), return_inverse=True)
    gallery_names, gallery_camera = np.unique(
        as_labels(gallery_cameras, "gallery_cameras", G), return_inverse=True
    )
    columns = [np.flatnonzero(gallery_camera.reshape(-1) == b) for b in range(len(gallery_names))]
    indices = [PartnerIndex(_restrict(labels, c)) for c in columns]
    precision = np.full((Q, len(columns)), np.nan)
    for part, scores, _ in score_chunks(source, PartnerIndex(labels), chunk_megabytes):
        for b, (own, index) in enumerate(zip(columns, indices, strict=True)):
            partners = index.partners(part.start, part.stop)
            of_camera = ignore_partners(scores[:, torch.from_numpy(own).to(scores.device)], partners)
            ranks = rank_right_answers(of_camera, sort_values(of_camera), partners)
            precision[part, b] = figures_of_ranks(ranks)[0]
    return CameraPairs(
        query_names, gallery_names, *_group(precision, query_camera.reshape(-1), len(query_names))
    )


def _restrict(labels: RetrievalLabels, columns: Ints) -> RetrievalLabels:
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
