"""What is left when modalities are missing: every subset of modalities against every other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from slimreid.arrays import Doubles, Ints
from slimreid.errors import DataError
from slimreid.evaluation.metrics.ranking import has_matches
from slimreid.evaluation.metrics.result import RetrievalResult, nullable
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.evaluation.reports.feature_metrics import Search, prepare_present, prepare_rows
from slimreid.inference.features.extract import Features
from slimreid.inference.similarity import Prepared, Similarity, Subset
from slimreid.progress import progress

THRESHOLD_RATE = 1e-2
"""False match rate of the thresholds that are kept for each pair of subsets."""
DRAWS = 3
"""Random draws of subsets for the mixed gallery."""
_CELLS = ("map", "rank1", "chances", "thresholds", "true_rates")
"""Figures of a pair of subsets."""


@dataclass(frozen=True)
class MixedGallery:
    """Retrieval when each sample is seen in a random subset of the modalities, on both sides."""

    map: float
    """Mean over the draws, 0 to 1."""
    rank1: float
    uniform_map: float
    """Mean mAP of the uniform pairs of subsets; those that share nothing count with their chance level."""
    equal_share: float
    """Share of the first ten answers that were seen in the query's very subset."""
    equal_chance: float
    """That share among all gallery items that can be compared with the query."""
    maps: tuple[float, ...]
    """mAP of each draw."""


@dataclass(frozen=True, eq=False)
class MissingMatrix:
    """Retrieval when queries (rows) and gallery (columns) are seen in S subsets of the modalities."""

    subsets: tuple[Subset, ...]
    """Small ones first; the last one is complete."""
    map: Doubles
    """(S, S), 0 to 1; NaN where no query has a correct match, or the subsets share nothing."""
    rank1: Doubles
    """(S, S), 0 to 1; NaN where no query has a correct match."""
    valid_queries: Ints
    """(S, S): the queries behind each figure; fewer where samples lack a modality of their own accord."""
    chance: float
    """mAP to expect of a random order, with all that is there."""
    chances: Doubles
    """(S, S): the same for each pair; other than `chance` only where samples lack a modality themselves."""
    thresholds: Doubles
    """(S, S): lowest score with at most 1 % false matches; NaN where there is none."""
    true_rates: Doubles
    """(S, S), 0 to 1: true matches at that threshold."""
    mixed: MixedGallery | None = None
    """The same with another subset for every sample."""

    def __post_init__(self) -> None:
        shape = (len(self.subsets),) * 2
        for name in (*_CELLS, "valid_queries"):
            if getattr(self, name).shape != shape:
                raise DataError(f"{name} must be {shape}, not {getattr(self, name).shape}")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: NaN becomes None."""
        return {
            "subsets": [list(subset) for subset in self.subsets],
            "valid_queries": self.valid_queries.tolist(),
            "chance_map": self.chance,
            **{name: nullable(getattr(self, name)) for name in _CELLS},
            "mixed": asdict(self.mixed) if self.mixed else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MissingMatrix:
        """The matrix that `to_dict` described."""
        S = len(values["subsets"])
        mixed = values.get("mixed")
        return cls(
            subsets=tuple(tuple(subset) for subset in values["subsets"]),
            map=np.array(values["map"], dtype=np.float64),
            rank1=np.array(values["rank1"], dtype=np.float64),
            valid_queries=np.array(values["valid_queries"], dtype=np.int64),
            chance=float(values["chance_map"]),
            chances=np.array(values.get("chances", np.full((S, S), values["chance_map"])), dtype=np.float64),
            thresholds=np.array(values.get("thresholds", np.full((S, S), np.nan)), dtype=np.float64),
            true_rates=np.array(values.get("true_rates", np.full((S, S), np.nan)), dtype=np.float64),
            mixed=MixedGallery(**mixed) if mixed else None,
        )


def missing_matrix(
    features: Mapping[Subset, Features],
    kind: str,
    search: Search,
    similarity: Similarity,
    complete: RetrievalResult,
    show_progress: bool | None = None,
) -> MissingMatrix:
    """Evaluate one kind of feature for every pair of subsets, and for a mix of them.

    `complete` is the result with all modalities on both sides, the last pair. A sample without any modality
    of a subset is left out of it, on either side.
    """
    subsets = tuple(features)
    S = len(subsets)
    cells: dict[str, Any] = {name: np.full((S, S), np.nan) for name in _CELLS}
    valid = np.zeros((S, S), dtype=np.int64)
    sides = [
        [prepare_present(features[subset], kind, similarity, rows) for subset in subsets]
        for rows in (search.query, search.gallery)
    ]
    pairs = [(a, b) for a in range(S) for b in range(S)]
    for a, b in progress(pairs, f"missing modalities ({kind})", show=show_progress):
        is_complete = a == b == S - 1
        result = complete if is_complete else _cell(search, similarity, *sides[0][a], *sides[1][b])
        if result is None:
            continue
        cells["chances"][a, b], valid[a, b] = result.chance_map, result.valid_queries
        if set(subsets[a]).isdisjoint(subsets[b]):
            continue  # nothing to compare: there is no order, and so no figure
        cells["map"][a, b], cells["rank1"][a, b] = result.map, result.rank(1)
        if result.roc is not None:
            point = result.roc.operating_points([THRESHOLD_RATE])[0]
            cells["true_rates"][a, b] = point.true_match_rate
            cells["thresholds"][a, b] = np.nan if point.threshold is None else point.threshold
    matrix = MissingMatrix(subsets=subsets, valid_queries=valid, chance=complete.chance_map, **cells)
    return replace(matrix, mixed=mixed_gallery(features, kind, search, similarity, matrix))


def _cell(
    search: Search, similarity: Similarity, rows: Ints, query: Prepared, columns: Ints, gallery: Prepared
) -> RetrievalResult | None:
    """Figures of one pair of subsets; None where no query has a correct match."""
    if not len(rows) or not len(columns):
        return None
    labels = search.labels(rows, columns)
    if not has_matches(labels):
        return None
    source = SimilarityScores(similarity, query, gallery)
    return evaluate_scores(source, labels, max_rank=1, top_k=0, roc=True)


def mixed_gallery(
    features: Mapping[Subset, Features],
    kind: str,
    search: Search,
    similarity: Similarity,
    matrix: MissingMatrix,
) -> MixedGallery | None:
    """Evaluate with a random subset of the modalities for each sample, on both sides, in several draws.

    None where no query has a correct match.
    """
    labels = search.labels()
    if not has_matches(labels):
        return None
    rows = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        query = _mixed(features, kind, similarity, search.query, rng)
        gallery = _mixed(features, kind, similarity, search.gallery, rng)
        result = evaluate_scores(SimilarityScores(similarity, query, gallery), labels, max_rank=1)
        rows.append((result.map, result.rank(1), *_equal_shares(result, similarity, query, gallery)))
    mean_map, rank1, share, chance = np.mean(rows, axis=0).tolist()
    # A pair of subsets that share nothing has no order: what chance gives is all there is to be had.
    cells = np.where(np.isnan(matrix.map), matrix.chances, matrix.map)
    maps = tuple(row[0] for row in rows)
    return MixedGallery(mean_map, rank1, float(np.nanmean(cells)), share, chance, maps)


def _mixed(
    features: Mapping[Subset, Features],
    kind: str,
    similarity: Similarity,
    rows: Ints,
    rng: np.random.Generator,
) -> Prepared:
    """Every row in a random subset of those in which it has features."""
    having = np.stack([f.position[rows] >= 0 for f in features.values()])
    draw = np.where(having, rng.random(having.shape), -1).argmax(axis=0)
    order = np.concatenate([np.flatnonzero(draw == n) for n in range(len(features))])
    parts = [
        prepare_rows(found, kind, similarity, rows[draw == n])
        for n, found in enumerate(features.values())
        if (draw == n).any()
    ]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Prepared(*map(np.concatenate, columns))[np.argsort(order)]


def _equal_shares(
    result: RetrievalResult, similarity: Similarity, query: Prepared, gallery: Prepared
) -> tuple[float, float]:
    """Share of the first ten that were seen in the query's very subset, and that by chance.

    By chance: its share of the gallery items that can be compared with the query.
    """
    known = (result.top_index >= 0) & ~np.isnan(result.top_score)
    equal = gallery.subset[result.top_index] == query.subset[:, None]
    share = (equal & known).sum() / max(1, known.sum())
    sizes = np.bincount(gallery.subset, minlength=len(similarity.subsets))
    comparable = similarity.shares.astype(np.int64) @ sizes
    return float(share), float((sizes[query.subset] / np.maximum(comparable[query.subset], 1)).mean())
