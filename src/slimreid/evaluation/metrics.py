"""From features and labels to a `RetrievalResult`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.errors import ConfigError
from slimreid.evaluation.inputs import Features, Labels, RetrievalLabels, check_labels
from slimreid.evaluation.protocols import PartnerIndex, Partners, no_match_error
from slimreid.evaluation.ranking import NO_RANK, ignore_partners, nearest, rank_right_answers, sort_values
from slimreid.evaluation.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.result import RetrievalResult
from slimreid.evaluation.roc import HistogramCounter
from slimreid.evaluation.scores import CosineScores, EuclideanScores, ScoreSource

CHUNK_MEGABYTES = 96.0


def evaluate_retrieval(
    query_features: Features,
    gallery_features: Features,
    query_ids: Labels,
    gallery_ids: Labels,
    query_cameras: Labels | None = None,
    gallery_cameras: Labels | None = None,
    query_scenes: Labels | None = None,
    gallery_scenes: Labels | None = None,
    protocol: str = "camera",
    *,
    query_index: Labels | None = None,
    gallery_index: Labels | None = None,
    normalize: bool = True,
    max_rank: int = 50,
    top_k: int = 10,
    histogram: bool = False,
    rerank: KReciprocal | None = None,
    chunk_megabytes: float = CHUNK_MEGABYTES,
) -> RetrievalResult:
    """Rank the gallery for every query and measure how early the right answers come.

    Features (Q, D) and (G, D), torch or numpy; labels (Q,) and (G,), whole numbers or text. `normalize`
    compares by cosine, otherwise by Euclidean distance. Keeps the first `top_k` items of each query,
    the CMC up to `max_rank` and, with `histogram`, what a ROC curve needs. Works in chunks of about
    `chunk_megabytes`. Raises `DataError` or `ConfigError` naming the input that is wrong.
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
    return evaluate_scores(
        source, labels, max_rank=max_rank, top_k=top_k, histogram=histogram, chunk_megabytes=chunk_megabytes
    )


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
    labels: RetrievalLabels,
    *,
    max_rank: int = 50,
    top_k: int = 10,
    histogram: bool = False,
    chunk_megabytes: float = CHUNK_MEGABYTES,
) -> RetrievalResult:
    """Evaluate any source of scores (Q, G) against checked labels; options as in `evaluate_retrieval`.

    Raises `ConfigError` for an option out of range, `DataError` when no query has a right answer.
    """
    if max_rank < 1 or top_k < 0:
        raise ConfigError(f"max_rank must be at least 1 and top_k at least 0, not {max_rank} and {top_k}")
    if histogram and not source.bounded:
        raise ConfigError("a histogram of scores needs normalised features; use normalize=True")
    index = PartnerIndex(labels)
    matches, candidates = index.counts()
    if not (matches > 0).any():
        raise no_match_error(labels)
    Q, G = source.shape
    precision, penalty = np.full(Q, np.nan), np.full(Q, np.nan)
    first_hit = np.zeros(Q, dtype=np.int64)
    top_index = np.full((Q, top_k), -1, dtype=np.int64)
    top_distance = np.full((Q, top_k), np.nan, dtype=np.float32)
    counter = HistogramCounter() if histogram else None
    for part, scores, partners in score_chunks(source, index, chunk_megabytes):
        if counter:
            counter.add(scores, partners)
        ordered = sort_values(ignore_partners(scores, partners))
        ranks = rank_right_answers(scores, ordered, partners)
        precision[part], penalty[part], first_hit[part] = figures_of_ranks(ranks)
        if top_k:
            item, score = nearest(scores, top_k)
            top_index[part] = item.cpu().numpy()
            top_distance[part] = source.distances(score).masked_fill(item < 0, torch.nan).cpu().numpy()
    kept = np.where(top_index >= 0, labels.gallery_ids[top_index], -1)
    return RetrievalResult(
        protocol=labels.protocol,
        query_ids=labels.query_names,
        average_precision=precision,
        inverse_penalty=penalty,
        first_hit=first_hit,
        matches=matches,
        candidates=candidates,
        cmc=cumulative_matches(first_hit[matches > 0], max_rank),
        top_index=top_index,
        top_distance=top_distance,
        top_right=kept == labels.query_ids[:, None],
        histogram=counter.result() if counter else None,
    )


def score_chunks(
    source: ScoreSource, index: PartnerIndex, chunk_megabytes: float = CHUNK_MEGABYTES
) -> Iterator[tuple[slice, Tensor, Partners]]:
    """Go through the queries in chunks: which rows, their scores (b, G), and their partners."""
    Q, G = source.shape
    # Scores live up to three times (as they are, sorted, in passing); a partner takes about ten words.
    row_bytes = 3 * 4 * G + 10 * 8 * index.longest
    rows = max(1, int(chunk_megabytes * 2**20 // row_bytes))
    for start in range(0, Q, rows):
        stop = min(Q, start + rows)
        yield slice(start, stop), source.scores(start, stop), index.partners(start, stop)


def figures_of_ranks(
    ranks: Tensor,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
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


def cumulative_matches(first_hit: NDArray[np.int64], max_rank: int) -> NDArray[np.float64]:
    """CMC (max_rank,): the share of queries whose first right answer comes at rank 1, up to 2, ..."""
    counts = np.bincount(first_hit, minlength=max_rank + 1)[1 : max_rank + 1]
    return np.cumsum(counts) / len(first_hit)
