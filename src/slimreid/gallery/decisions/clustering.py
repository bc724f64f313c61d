"""Identities for rows that have none: rows that are alike at a calibrated threshold become one.

Average linkage, by SciPy: two clusters become one while their rows score above the threshold on
average. That needs at least one pair above it, so clusters never reach beyond a connected component of the
pairs above the threshold. Each component is clustered on its own, with the same result and little memory.

The right threshold is the lax one of a calibration (`unsure_rate`): an average over all pairs of two clusters
is lower than the best pair, for which thresholds are made. `benchmarks/cluster.py` compares it with others:
single linkage and DBSCAN find more there, but chain strangers together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from slimreid.arrays import Doubles, Ints
from slimreid.errors import DataError
from slimreid.inference.similarity import Prepared, Similarity

LARGEST = 4096
"""Rows that are clustered at once at most: 128 MB for their distances."""
_SCORES_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class Clusters:
    """Proposed identities of n rows."""

    labels: Ints
    """(n,): number of the cluster, 0 being the largest one; −1 for rows that resemble no other."""
    split: int = 0
    """Rows in components that were too large and were split at a higher threshold first."""


def propose_identities(
    similarity: Similarity, features: ArrayLike, threshold: float, present: ArrayLike | None = None
) -> Clusters:
    """Cluster features (n, D) of rows that have the modalities `present` (n, M); None = all of them.

    `threshold` is on the scale of `similarity`. Pairs that share no modality speak neither for nor against.
    Memory is bounded by the number of pairs above the threshold, not by n². Raises `DataError` for a
    threshold that is not a number, or features that do not fit.
    """
    if not np.isfinite(threshold):
        raise DataError(f"the threshold must be a number, not {threshold}")
    rows = similarity.prepare(features, present)
    n = len(rows)
    if n < 2:
        return Clusters(np.full(n, -1, dtype=np.int64))
    pairs = _pairs_above(similarity, rows, threshold)
    labels, split = np.arange(n), 0
    for members in _components(n, pairs):
        if len(members) > LARGEST:
            split += len(members)
        for part in _small_parts(members, pairs):
            labels[part] = part[_average_linkage(similarity, rows[part], threshold)]
    return Clusters(_by_size(labels), split)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of rows (P,) and their scores."""

    first: Ints
    second: Ints
    scores: Doubles


def _pairs_above(similarity: Similarity, rows: Prepared, threshold: float) -> _Pairs:
    """Pairs i < j that score above the threshold."""
    n = len(rows)
    step = max(1, _SCORES_AT_ONCE // n)
    first, second, found = [], [], []
    for start in range(0, n, step):
        scores = similarity.scores(rows[start : start + step], rows[start:])
        i, j = np.nonzero(np.triu(scores > threshold, k=1))
        first.append(i + start)
        second.append(j + start)
        found.append(scores[i, j].astype(np.float64))
    return _Pairs(np.concatenate(first), np.concatenate(second), np.concatenate(found))


def _components(n: int, pairs: _Pairs) -> Iterator[Ints]:
    """Members of the connected components that have at least two, of rows 0 to n − 1."""
    there = np.ones(len(pairs.first), dtype=np.bool_)
    graph = coo_array((there, (pairs.first, pairs.second)), shape=(n, n))
    label = connected_components(graph, directed=False)[1]
    order = np.argsort(label, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        if len(members) > 1:
            yield members.astype(np.int64)


def _small_parts(members: Ints, pairs: _Pairs) -> Iterator[Ints]:
    """A component itself, or where it is too large its components by the better half of its pairs."""
    if len(members) <= LARGEST:
        yield members
        return
    place = np.full(int(members.max()) + 1, -1)
    place[members] = np.arange(len(members))
    inside = np.isin(pairs.first, members)
    better = inside & (pairs.scores > np.median(pairs.scores[inside]))
    kept = _Pairs(place[pairs.first[better]], place[pairs.second[better]], pairs.scores[better])
    for part in _components(len(members), kept):
        yield from (members[smaller] for smaller in _small_parts(part, kept))


def _average_linkage(similarity: Similarity, rows: Prepared, threshold: float) -> Ints:
    """For each of m rows (m,) the place of the first one of its cluster."""
    above = similarity.scores(rows, rows).astype(np.float64) - threshold
    above[np.isnan(above)] = 0  # exactly the threshold, and so is every average of such pairs
    distance = -(above + above.T) / 2
    tree = linkage(distance[np.triu_indices(len(distance), 1)], "average")
    merged = int((tree[:, 2] < 0).sum())
    tree[:, 2] -= tree[0, 2]  # a tree must not have negative distances
    label = cut_tree(tree, len(distance) - merged)[:, 0]
    first: NDArray[np.int64] = np.unique(label, return_index=True)[1][label]
    return first


def _by_size(labels: Ints) -> Ints:
    """Numbers by falling size, in order of first appearance among equals; −1 for rows that are alone."""
    _, first, number, count = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -count))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    rank[count == 1] = -1
    return rank[number.reshape(-1)]
