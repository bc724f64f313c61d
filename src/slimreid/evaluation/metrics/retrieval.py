"""From features and labels to a `RetrievalResult`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.arrays import Doubles, Ints
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.labels import EncodedLabels, Features, Labels, check_sizes
from slimreid.evaluation.metrics.ranking import (
    NO_RANK,
    PositiveIndex,
    Positives,
    mask_ignored,
    nearest,
    no_match_error,
    rank_matches,
    sort_values,
)
from slimreid.evaluation.metrics.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.metrics.result import RetrievalResult, nullable
from slimreid.evaluation.metrics.roc import PairScores
from slimreid.evaluation.metrics.scores import NO_SIMILARITY, CosineScores, EuclideanScores, ScoreSource

CHUNK_MEGABYTES = 96.0


class Measure(Interface):
    """Something that is measured while the scores go by, some queries at a time."""

    def add(self, rows: slice, scores: Tensor, positives: Positives) -> None:
        """Take the scores (b, G) of the queries `rows`, ignored items at −inf; they must not be changed."""


def evaluate_retrieval(
    query_features: Features,
    gallery_features: Features,
    labels: Labels,
    *,
    normalize: bool = True,
    max_rank: int = 50,
    top_k: int = 10,
    roc: bool = False,
    rerank: KReciprocal | None = None,
) -> RetrievalResult:
    """Rank the gallery for every query and measure how early the correct matches come.

    Args:
        query_features: (Q, D), torch or numpy.
        gallery_features: (G, D).
        labels: Who and where they are, and the protocol.
        normalize: Compare by cosine; otherwise by Euclidean distance.
        max_rank: Length of the CMC.
        top_k: Items kept of each query's rank list.
        roc: Also the rates of true and false matches.
        rerank: Options of k-reciprocal re-ranking, if wanted.

    Raises:
        DataError, ConfigError: Naming the input that is wrong.
    """
    source = score_source(query_features, gallery_features, normalize, rerank)
    return evaluate_scores(source, labels, max_rank=max_rank, top_k=top_k, roc=roc)


def score_source(
    query_features: Features,
    gallery_features: Features,
    normalize: bool = True,
    rerank: KReciprocal | None = None,
    chunk_megabytes: float = CHUNK_MEGABYTES,
) -> ScoreSource:
    """How queries (Q, D) are scored against the gallery (G, D); raises `DataError` for wrong features."""
    if rerank is not None:
        return RerankedScores(query_features, gallery_features, rerank, normalize, chunk_megabytes)
    return (CosineScores if normalize else EuclideanScores)(query_features, gallery_features)


def evaluate_scores(
    source: ScoreSource,
    labels: Labels,
    *,
    max_rank: int = 50,
    top_k: int = 10,
    roc: bool = False,
    measures: Sequence[Measure] = (),
    chunk_megabytes: float = CHUNK_MEGABYTES,
) -> RetrievalResult:
    """`evaluate_retrieval` for anything that gives scores, in one pass over them.

    Args:
        source: Scores of queries (Q) and gallery items (G), by blocks of queries.
        labels: Identities, cameras and scenes of both, and the protocol.
        max_rank: Length of the CMC.
        top_k: Items of the rank list kept for every query.
        roc: Whether to compute match rates over all pairs, too.
        measures: Further figures to compute in the same pass.
        chunk_megabytes: About how much memory the scores of a block take.

    Raises:
        ConfigError: For an option out of range.
        DataError: When no query has a correct match.
    """
    if max_rank < 1 or top_k < 0:
        raise ConfigError(f"max_rank must be at least 1 and top_k at least 0, not {max_rank} and {top_k}")
    check_sizes(labels, source.shape)
    ranks = Ranks(labels.encoded, source.shape, top_k)
    pairs = [PairScores(int((ranks.candidates - ranks.matches).sum()))] if roc else []
    everything: list[Measure] = [ranks, *pairs, *measures]
    for rows, scores, positives in score_chunks(source, ranks.index, chunk_megabytes):
        for measure in everything:
            measure.add(rows, scores, positives)
    return ranks.result(max_rank, pairs[0] if pairs else None)


class Ranks:
    """The ranks of correct matches, and the first k items of each query; a `Measure`.

    Raises `DataError` when no query has a correct match.
    """

    def __init__(self, labels: EncodedLabels, shape: tuple[int, int], top_k: int) -> None:
        self.labels = labels
        self.index = PositiveIndex(labels)
        self.matches, self.candidates = self.index.counts()
        if not (self.matches > 0).any():
            raise no_match_error(labels)
        Q = shape[0]
        self._precision, self._penalty = np.full(Q, np.nan), np.full(Q, np.nan)
        self._first_hit = np.zeros(Q, dtype=np.int64)
        self._top_index = np.full((Q, top_k), -1, dtype=np.int64)
        self._top_score = np.full((Q, top_k), np.nan, dtype=np.float32)

    def add(self, rows: slice, scores: Tensor, positives: Positives) -> None:
        """Rank the gallery for these queries."""
        ranks = rank_matches(scores, sort_values(scores), positives)
        self._precision[rows], self._penalty[rows], self._first_hit[rows] = figures_of_ranks(ranks)
        top_k = self._top_index.shape[1]
        if top_k:
            item, score = nearest(scores, top_k)
            self._top_index[rows] = item.cpu().numpy()
            self._top_score[rows] = score.masked_fill(score <= NO_SIMILARITY, torch.nan).cpu().numpy()

    def result(self, max_rank: int, pairs: PairScores | None = None) -> RetrievalResult:
        """What was found, once all queries are in."""
        labels = self.labels
        found = np.where(self._top_index >= 0, labels.gallery_ids[self._top_index], -1)
        first = self._first_hit[self.matches > 0]
        hits = np.bincount(first, minlength=max_rank + 1)[1 : max_rank + 1]
        return RetrievalResult(
            protocol=labels.protocol,
            query_ids=labels.query_names,
            average_precision=self._precision,
            inverse_penalty=self._penalty,
            first_hit=self._first_hit,
            matches=self.matches,
            candidates=self.candidates,
            cmc=np.cumsum(hits) / len(first),
            top_index=self._top_index,
            top_score=self._top_score,
            top_is_match=found == labels.query_ids[:, None],
            roc=pairs.curve() if pairs else None,
        )


def score_chunks(
    source: ScoreSource, index: PositiveIndex, chunk_megabytes: float = CHUNK_MEGABYTES
) -> Iterator[tuple[slice, Tensor, Positives]]:
    """Go through the queries in chunks: which rows, their scores (b, G) with −inf for ignored, positives."""
    Q, G = source.shape
    # Scores live up to three times (as they are, sorted, in passing); a positive takes about ten words.
    row_bytes = 3 * 4 * G + 10 * 8 * index.longest
    rows = max(1, int(chunk_megabytes * 2**20 // row_bytes))
    for start in range(0, Q, rows):
        stop = min(Q, start + rows)
        positives = index.positives(start, stop)
        yield slice(start, stop), mask_ignored(source.scores(start, stop), positives), positives


def figures_of_ranks(ranks: Tensor) -> tuple[Doubles, Doubles, Ints]:
    """Average precision, inverse negative penalty and first hit, (b,) each, from ranks (b, n).

    Ranks ascend and are filled up with `NO_RANK`; a row without any gives NaN, NaN and 0.
    """
    B, n = ranks.shape
    there = ranks != NO_RANK
    matches = there.sum(dim=1)
    hits = torch.arange(1, n + 1, device=ranks.device, dtype=torch.float64)
    precision = (hits / ranks).masked_fill_(~there, 0).sum(dim=1) / matches
    last = ranks.gather(1, (matches - 1).clamp(min=0)[:, None])[:, 0]
    penalty = (matches.double() / last).masked_fill_(matches == 0, torch.nan)
    first = ranks[:, 0].masked_fill(matches == 0, 0)
    return precision.cpu().numpy(), penalty.cpu().numpy(), first.cpu().numpy()


@dataclass(frozen=True, eq=False)
class CameraPairs:
    """mAP of queries of camera a (rows, A) when only gallery items of camera b (columns, B) are searched."""

    query_cameras: NDArray[np.generic]
    gallery_cameras: NDArray[np.generic]
    map: Doubles
    """(A, B), 0 to 1; NaN where no query has a correct match."""
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
            "map": nullable(self.map),
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
    places = None if labels.gallery_places is None else labels.gallery_places[columns]
    return replace(labels, gallery_ids=labels.gallery_ids[columns], gallery_places=places)


def _group(precision: Doubles, camera: Ints, cameras: int) -> tuple[Doubles, Ints]:
    """Means (A, B) over the queries of each camera that have a figure, and their number."""
    there = ~np.isnan(precision)
    total = np.zeros((cameras, precision.shape[1]))
    number = np.zeros((cameras, precision.shape[1]), dtype=np.int64)
    np.add.at(total, camera, np.where(there, precision, 0.0))
    np.add.at(number, camera, there)
    mean = np.full(total.shape, np.nan)
    np.divide(total, number, out=mean, where=number > 0)
    return mean, number
