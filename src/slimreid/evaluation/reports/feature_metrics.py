"""All figures of one kind of feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slimreid.data.manifest import Protocol, Sample
from slimreid.evaluation.metrics.bootstrap import Interval, bootstrap_map
from slimreid.evaluation.metrics.camera_pairs import CameraPairs, PairMeasure
from slimreid.evaluation.metrics.labels import Ints, Labels
from slimreid.evaluation.metrics.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.roc import OperatingPoint, RocCurve
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.evaluation.query_gallery import retrieval_labels
from slimreid.evaluation.reports import records
from slimreid.inference.features.extract import Features
from slimreid.inference.similarity import Prepared, Similarity


@dataclass(frozen=True, eq=False)
class FeatureMetrics:
    """How well one kind of feature retrieves."""

    result: RetrievalResult
    interval: Interval
    """95 % interval of the mAP over identities; NaN bounds where there is only one."""
    camera_pairs: CameraPairs
    reranked: RetrievalResult | None = None

    @property
    def roc(self) -> RocCurve | None:
        """Rates of true and false matches; None where there are no false pairs."""
        return self.result.roc

    @property
    def operating_points(self) -> list[OperatingPoint]:
        """Thresholds at false match rates 1e-2, 1e-3, 1e-4; empty where there are no false pairs."""
        return self.result.roc.operating_points() if self.result.roc else []

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            **records.result_to_dict(self.result),
            "interval": records.interval_to_dict(self.interval),
            "operating_points": [point.to_dict() for point in self.operating_points],
            "camera_pairs": self.camera_pairs.to_dict(),
            "reranked": records.result_to_dict(self.reranked) if self.reranked else None,
            "roc": records.roc_to_dict(self.result.roc) if self.result.roc else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureMetrics:
        """The figures that `to_dict` described."""
        roc, reranked = values["roc"], values["reranked"]
        return cls(
            result=records.result_from_dict(values, records.roc_from_dict(roc) if roc else None),
            interval=records.interval_from_dict(values["interval"]),
            camera_pairs=records.pairs_from_dict(values["camera_pairs"]),
            reranked=records.result_from_dict(reranked) if reranked else None,
        )


@dataclass(frozen=True, eq=False)
class Search:
    """What is searched: the rows of both sides, who they are, and how they are compared."""

    samples: Sequence[Sample]
    """All rows that features describe."""
    query: Ints
    gallery: Ints
    protocol: Protocol

    def labels(self, query: Ints | None = None, gallery: Ints | None = None) -> Labels:
        """Labels of both sides, or of some rows of them."""
        query = self.query if query is None else query
        gallery = self.gallery if gallery is None else gallery
        return retrieval_labels(self.samples, query.tolist(), gallery.tolist(), self.protocol)


def prepare_rows(features: Features, kind: str, similarity: Similarity, rows: Ints) -> Prepared:
    """Features of some rows, ready to be compared."""
    return similarity.prepare(features.get(kind, rows), features.presence(rows))


def feature_metrics(
    features: Features,
    kind: str,
    search: Search,
    similarity: Similarity,
    rerank: KReciprocal | None = None,
) -> FeatureMetrics:
    """Evaluate one kind of feature; similarities are computed once.

    Raises `DataError` when no query has a right answer.
    """
    query = prepare_rows(features, kind, similarity, search.query)
    gallery = prepare_rows(features, kind, similarity, search.gallery)
    labels = search.labels()
    pairs = PairMeasure(labels)
    result = evaluate_scores(SimilarityScores(similarity, query, gallery), labels, roc=True, measures=[pairs])
    several = len(np.unique(result.query_ids[result.valid])) > 1
    nan = float("nan")
    reranked = None
    if rerank is not None:
        reranked = evaluate_scores(RerankedScores(query.values, gallery.values, rerank), labels)
    return FeatureMetrics(
        result=result,
        interval=bootstrap_map(result) if several else Interval(result.map, nan, nan, 0.95, 0),
        camera_pairs=pairs.result(),
        reranked=reranked,
    )
