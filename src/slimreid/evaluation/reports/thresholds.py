"""Thresholds that were chosen elsewhere, applied to other data: what share of its pairs reaches them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slimreid.arrays import Ints
from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.ranking import PositiveIndex
from slimreid.evaluation.metrics.retrieval import score_chunks
from slimreid.evaluation.metrics.roc import false_scores, true_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.evaluation.reports.feature_metrics import FeatureMetrics, Search, prepare_present
from slimreid.evaluation.reports.missing import THRESHOLD_RATE, MissingMatrix
from slimreid.inference.features.extract import Features
from slimreid.inference.similarity import Similarity, Subset


@dataclass(frozen=True)
class Threshold:
    """A threshold on the score, and the pairs it is for."""

    value: float
    query: Subset | None = None
    """Modalities in which queries are shown; None = all that the data has."""
    gallery: Subset | None = None
    """The same for the gallery."""
    kind: str | None = None
    """Kind of feature; None = every one."""
    chosen_rate: float | None = None
    """False match rate for which it was chosen, where that is known."""


@dataclass(frozen=True)
class ThresholdRates:
    """What a given threshold does on some data: pairs with at least this score are called the same."""

    kind: str
    query: Subset
    gallery: Subset
    threshold: float
    chosen_rate: float | None
    true_match_rate: float
    """Share of the true pairs with at least this score; NaN where there are none."""
    false_match_rate: float
    """The same of the false pairs."""
    true_pairs: int
    false_pairs: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = {name: None if value != value else value for name, value in vars(self).items()}
        return {**values, "query": list(self.query), "gallery": list(self.gallery)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ThresholdRates:
        """The rates that `to_dict` described."""
        rates = ("true_match_rate", "false_match_rate")
        known = {name: float("nan") if values[name] is None else float(values[name]) for name in rates}
        sides = {name: tuple(values[name]) for name in ("query", "gallery")}
        return cls(**{**values, **known, **sides})


def thresholds_of(
    features: Mapping[str, FeatureMetrics], missing: Mapping[str, MissingMatrix], modalities: Subset
) -> list[Threshold]:
    """All thresholds of an evaluation: of what was shown in `modalities`, and of pairs of other subsets."""
    found = []
    for kind, scores in features.items():
        for point in scores.operating_points:
            if point.threshold is not None:
                found.append(Threshold(point.threshold, modalities, modalities, kind, point.false_match_rate))
    for kind, matrix in missing.items():
        for a, b in itertools.product(range(len(matrix.subsets)), repeat=2):
            value, sides = float(matrix.thresholds[a, b]), (matrix.subsets[a], matrix.subsets[b])
            if not np.isnan(value) and sides != (modalities, modalities):
                found.append(Threshold(value, *sides, kind, THRESHOLD_RATE))
    return found


def needed_subsets(thresholds: Iterable[Threshold], available: Subset) -> list[Subset]:
    """The subsets that features must be computed for; raises `DataError` for one the data does not have."""
    named = [side for t in thresholds for side in (t.query, t.gallery) if side is not None]
    for subset in named:
        if absent := [name for name in subset if name not in available]:
            raise DataError(f"a threshold is for {'+'.join(subset)}, but the data has no {', '.join(absent)}")
    return list(dict.fromkeys(named))


def threshold_rates(
    features: Mapping[Subset, Features],
    available: Subset,
    search: Search,
    similarities: Mapping[str, Similarity],
    thresholds: Sequence[Threshold],
) -> tuple[ThresholdRates, ...]:
    """Apply each threshold to every pair of query and gallery item that is not ignored, exactly.

    Args:
        features: By subset of the modalities, all that thresholds name.
        available: The modalities of the data.
        search: What is searched.
        similarities: By kind of feature; thresholds of other kinds are left out.
        thresholds: What is applied.
    """
    groups: dict[tuple[str, Subset, Subset], list[Threshold]] = {}
    for kind in similarities:
        for threshold in thresholds:
            if threshold.kind in (None, kind):
                sides = (threshold.query or available, threshold.gallery or available)
                groups.setdefault((kind, *sides), []).append(threshold)
    found = []
    for (kind, query, gallery), group in groups.items():
        similarity = similarities[kind]
        query_rows, left = prepare_present(features[query], kind, similarity, search.query)
        gallery_rows, right = prepare_present(features[gallery], kind, similarity, search.gallery)
        values = [threshold.value for threshold in group]
        source = SimilarityScores(similarity, left, right)
        counts, pairs = count_matches(source, search.labels(query_rows, gallery_rows), values)
        rates = counts / np.where(pairs > 0, pairs, np.nan)[:, None]
        for threshold, true, false in zip(group, *rates.tolist(), strict=True):
            of = (kind, query, gallery, threshold.value, threshold.chosen_rate)
            found.append(ThresholdRates(*of, true, false, *pairs.tolist()))
    return tuple(found)


def count_matches(source: SimilarityScores, labels: Labels, thresholds: Sequence[float]) -> tuple[Ints, Ints]:
    """Pairs that reach each of T thresholds, (2, T): true ones, false ones; and how many there are, (2,)."""
    order = np.argsort(thresholds)
    ascending = np.array(thresholds, dtype=np.float64)[order]
    counts, pairs = np.zeros((2, len(ascending)), dtype=np.int64), np.zeros(2, dtype=np.int64)
    if not all(source.shape):
        return counts, pairs
    for _, scores, positives in score_chunks(source, PositiveIndex(labels.encoded)):
        false = ((1, part) for part in false_scores(scores, positives))
        for side, part in ((0, true_scores(scores, positives)), *false):
            # In double precision: rounded to that of the scores, a threshold could let one more pass.
            reached = np.searchsorted(ascending, part.astype(np.float64), side="right")
            pairs[side] += len(part)
            counts[side, order] += np.bincount(reached, minlength=len(ascending) + 1)[::-1].cumsum()[::-1][1:]
    return counts, pairs
