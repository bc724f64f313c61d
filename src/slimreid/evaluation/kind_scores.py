"""All figures of one kind of feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slimreid.data.manifest import Protocol, Sample
from slimreid.evaluation import records
from slimreid.evaluation.bootstrap import Interval, bootstrap_map
from slimreid.evaluation.camera_pairs import CameraPairs, camera_pair_map
from slimreid.evaluation.features import Features
from slimreid.evaluation.inputs import Ints
from slimreid.evaluation.metrics import evaluate_retrieval
from slimreid.evaluation.parts import retrieval_labels
from slimreid.evaluation.rerank import KReciprocal
from slimreid.evaluation.result import RetrievalResult
from slimreid.evaluation.roc import OperatingPoint, ScoreHistogram


@dataclass(frozen=True, eq=False)
class Scores:
    """How well one kind of feature retrieves."""

    result: RetrievalResult
    interval: Interval
    """95 % interval of the mAP over identities; NaN bounds where there is only one."""
    histogram: ScoreHistogram
    """Cosine of true and false pairs."""
    operating_points: list[OperatingPoint]
    """Thresholds at false match rates 1e-2, 1e-3, 1e-4; empty where there are no false pairs."""
    camera_pairs: CameraPairs
    reranked: RetrievalResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            **records.result_to_dict(self.result),
            "interval": records.interval_to_dict(self.interval),
            "operating_points": [point.to_dict() for point in self.operating_points],
            "camera_pairs": self.camera_pairs.to_dict(),
            "reranked": records.result_to_dict(self.reranked) if self.reranked else None,
            "histogram": records.histogram_to_dict(self.histogram),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scores:
        """The scores that `to_dict` described."""
        histogram = records.histogram_from_dict(values["histogram"])
        reranked = values["reranked"]
        return cls(
            result=records.result_from_dict(values, histogram),
            interval=records.interval_from_dict(values["interval"]),
            histogram=histogram,
            operating_points=records.points_from_list(values["operating_points"]),
            camera_pairs=records.pairs_from_dict(values["camera_pairs"]),
            reranked=records.result_from_dict(reranked) if reranked else None,
        )


def score_kind(
    features: Features,
    kind: str,
    samples: Sequence[Sample],
    query: Ints,
    gallery: Ints,
    protocol: Protocol,
    rerank: KReciprocal | None = None,
) -> Scores:
    """Evaluate one kind of feature; `samples` are the rows of `features`, `query` and `gallery` rows of them.

    Raises `DataError` when no query has a right answer.
    """
    first, second = (features.get(kind, torch.from_numpy(rows)) for rows in (query, gallery))
    labels = retrieval_labels(samples, query.tolist(), gallery.tolist(), protocol)
    result = evaluate_retrieval(first, second, **labels, histogram=True)
    assert result.histogram is not None
    several = len(np.unique(result.query_ids[result.valid])) > 1
    nan = float("nan")
    return Scores(
        result=result,
        interval=bootstrap_map(result) if several else Interval(result.map, nan, nan, 0.95, 0),
        histogram=result.histogram,
        operating_points=result.histogram.operating_points() if result.histogram.false.any() else [],
        camera_pairs=camera_pair_map(first, second, **labels),
        reranked=evaluate_retrieval(first, second, **labels, rerank=rerank) if rerank else None,
    )
