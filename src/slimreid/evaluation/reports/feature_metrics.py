"""All figures of one kind of feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slimreid.arrays import Ints
from slimreid.data.manifest import Protocol, Sample
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.metrics.result import Interval, RetrievalResult, bootstrap_map, nullable
from slimreid.evaluation.metrics.retrieval import CameraPairs, PairMeasure, evaluate_scores
from slimreid.evaluation.metrics.roc import OperatingPoint, RocCurve
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.evaluation.query_gallery import retrieval_labels
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
            **result_to_dict(self.result),
            "interval": self.interval.to_dict(),
            "operating_points": [point.to_dict() for point in self.operating_points],
            "camera_pairs": self.camera_pairs.to_dict(),
            "reranked": result_to_dict(self.reranked) if self.reranked else None,
            "roc": roc_to_dict(self.result.roc) if self.result.roc else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureMetrics:
        """The figures that `to_dict` described."""
        roc, reranked = values["roc"], values["reranked"]
        return cls(
            result=result_from_dict(values, roc_from_dict(roc) if roc else None),
            interval=Interval.from_dict(values["interval"]),
            camera_pairs=pairs_from_dict(values["camera_pairs"]),
            reranked=result_from_dict(reranked) if reranked else None,
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


def prepare_present(
    features: Features, kind: str, similarity: Similarity, rows: Ints
) -> tuple[Ints, Prepared]:
    """Those of the rows that have features, and these, ready to be compared."""
    having = rows[features.position[rows] >= 0]
    return having, prepare_rows(features, kind, similarity, having)


def feature_metrics(
    features: Features,
    kind: str,
    search: Search,
    similarity: Similarity,
    rerank: KReciprocal | None = None,
) -> FeatureMetrics:
    """Evaluate one kind of feature; similarities are computed once.

    Raises `DataError` when no query has a correct match.
    """
    query = prepare_rows(features, kind, similarity, search.query)
    gallery = prepare_rows(features, kind, similarity, search.gallery)
    labels = search.labels()
    pairs = PairMeasure(labels)
    result = evaluate_scores(SimilarityScores(similarity, query, gallery), labels, roc=True, measures=[pairs])
    reranked = None
    if rerank is not None:
        reranked = evaluate_scores(RerankedScores(query.values, gallery.values, rerank), labels)
    return FeatureMetrics(
        result=result,
        interval=bootstrap_map(result),
        camera_pairs=pairs.result(),
        reranked=reranked,
    )


def result_to_dict(result: RetrievalResult) -> dict[str, Any]:
    """Figures of a result, and all that belongs to single queries; the ROC is kept elsewhere."""
    figures = replace(result, roc=None).to_dict()
    figures["cmc_curve"] = result.cmc.tolist()
    figures["queries"] = {
        "identity": result.query_ids.tolist(),
        "average_precision": nullable(result.average_precision),
        "inverse_penalty": nullable(result.inverse_penalty),
        "first_hit": result.first_hit.tolist(),
        "matches": result.matches.tolist(),
        "candidates": result.candidates.tolist(),
        "top_index": result.top_index.tolist(),
        "top_score": nullable(result.top_score.astype(np.float64).round(7)),
        "top_is_match": result.top_is_match.astype(int).tolist(),
    }
    return figures


def result_from_dict(values: Mapping[str, Any], roc: RocCurve | None = None) -> RetrievalResult:
    """The result that `result_to_dict` described; raises `DataError` where it contradicts itself."""
    queries = values["queries"]
    arrays: dict[str, Any] = {name: np.array(queries[name], dtype=kind) for name, kind in _PER_QUERY.items()}
    for name in ("top_index", "top_score", "top_is_match"):
        arrays[name] = arrays[name].reshape(len(queries["identity"]), -1)
    cmc = np.array(values["cmc_curve"], dtype=np.float64)
    return RetrievalResult(values["protocol"], np.array(queries["identity"]), cmc=cmc, roc=roc, **arrays)


_PER_QUERY = {
    **dict.fromkeys(("average_precision", "inverse_penalty"), np.float64),
    **dict.fromkeys(("first_hit", "matches", "candidates", "top_index"), np.int64),
    "top_score": np.float32,
    "top_is_match": np.bool_,
}


def roc_to_dict(roc: RocCurve) -> dict[str, Any]:
    """Ready for JSON: the threshold that no pair reaches becomes None."""
    values: dict[str, Any] = {name: getattr(roc, name) for name in RocCurve.__dataclass_fields__}
    lists = {name: value.tolist() for name, value in values.items() if isinstance(value, np.ndarray)}
    lists["thresholds"] = [value if np.isfinite(value) else None for value in lists["thresholds"]]
    return {**values, **lists}


def roc_from_dict(values: Mapping[str, Any]) -> RocCurve:
    """The curve that `roc_to_dict` described."""
    floats = ("false_rate", "true_rate", "edges")
    given: dict[str, Any] = {name: np.array(values[name], dtype=np.float64) for name in floats}
    given |= {name: np.array(values[name], dtype=np.int64) for name in ("true", "false")}
    given |= {name: int(values[name]) for name in ("true_pairs", "false_pairs")}
    return RocCurve(np.array([np.inf if value is None else value for value in values["thresholds"]]), **given)


def pairs_from_dict(values: Mapping[str, Any]) -> CameraPairs:
    """The table that `CameraPairs.to_dict` described."""
    return CameraPairs(
        query_cameras=np.array(values["query_cameras"]),
        gallery_cameras=np.array(values["gallery_cameras"]),
        map=np.array(values["map"], dtype=np.float64),
        queries=np.array(values["queries"], dtype=np.int64),
    )
