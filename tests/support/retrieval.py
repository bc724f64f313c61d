"""Evaluating features and labels that lie in one dictionary."""

from __future__ import annotations

from typing import Any

from slimreid.evaluation import CameraPairs, Labels, RetrievalResult, camera_pair_map
from slimreid.evaluation.metrics.retrieval import CHUNK_MEGABYTES, evaluate_scores, score_source

_LABELS = tuple(Labels.__dataclass_fields__)


def labels_of(case: dict[str, Any]) -> Labels:
    """The labels among the values of a case; (query, gallery) may also come one after the other."""
    return Labels(**{name: value for name, value in case.items() if name in _LABELS})


def retrieve(query_features: Any, gallery_features: Any, *labels: Any, **case: Any) -> RetrievalResult:
    """`evaluate_retrieval` with labels given one by one, and `chunk_megabytes`."""
    case |= dict(zip(_LABELS, labels, strict=False))
    options = {name: value for name, value in case.items() if name not in _LABELS}
    chunk = options.pop("chunk_megabytes", CHUNK_MEGABYTES)
    normalize, rerank = options.pop("normalize", True), options.pop("rerank", None)
    source = score_source(query_features, gallery_features, normalize, rerank, chunk)
    return evaluate_scores(source, labels_of(case), chunk_megabytes=chunk, **options)


def camera_pairs(query_features: Any, gallery_features: Any, **case: Any) -> CameraPairs:
    """`camera_pair_map` with labels given one by one."""
    return camera_pair_map(query_features, gallery_features, labels_of(case))
