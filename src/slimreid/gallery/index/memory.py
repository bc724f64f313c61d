"""Exact search in memory, with filters, in a gallery whose samples may lack modalities."""

from __future__ import annotations

import numpy as np

from slimreid.arrays import Bools, Floats, Ints
from slimreid.gallery.index.columns import Columns
from slimreid.gallery.index.quantised import RowScale, find_candidates, is_available, row_scale
from slimreid.gallery.index.sidecar import Arrays
from slimreid.gallery.store.rows import Filter, Found
from slimreid.inference.similarity import Prepared, Similarity

PIECE = 16_384
"""Rows compared at once: with 32 queries their scores stay in the processor's cache."""
LARGE = 4_000
"""Rows from which candidates are searched for in 8 bits first."""
MOST = 0.1
"""Share of rows beyond which comparing all is no slower than comparing candidates."""
FEW = 0.1
"""Share of rows up to which those that a filter means are gathered before they are compared."""


class MemoryIndex:
    """Features and columns of a gallery, for one process."""

    def __init__(self, similarity: Similarity, arrays: Arrays, columns: Columns) -> None:
        self.similarity, self.arrays, self.columns = similarity, arrays, columns
        self._scales: dict[int, tuple[Similarity, RowScale]] = {}
        self._rows = columns.rows  # they may grow while another thread searches
        ids = columns.ids[: columns.rows]
        same = np.array_equal(ids, arrays.ids)
        self._at: Ints | None = None if same else np.searchsorted(ids, arrays.ids)
        """(n,): where the features' rows are among the columns; None = at the same places."""

    def __len__(self) -> int:
        return len(self.arrays)

    def search(
        self, query: Prepared, k: int, which: Filter, similarity: Similarity | None = None
    ) -> list[Found]:
        """For each query the k rows with the highest scores; `similarity`: the same with another scale."""
        similarity = similarity or self.similarity
        chosen = self.columns.select(which, self._rows)
        if self._at is not None:
            chosen = chosen[self._at]
        results: list[Found | None] = [None] * len(query)
        for a in np.unique(query.subset):
            members = np.flatnonzero(query.subset == a)
            shares = self.similarity.shares[a]
            allowed = chosen if shares.all() else chosen & shares[self.arrays.prepared.subset]
            best = self._best(query[members], k, allowed, similarity)
            for number, (places, scores) in zip(members, best, strict=True):
                rows = places if self._at is None else self._at[places]
                names = self.columns.names("identity", rows)
                results[number] = Found(self.columns.ids[rows], scores, names)
        return [found for found in results if found is not None]

    def _best(
        self, query: Prepared, k: int, allowed: Bools, similarity: Similarity
    ) -> list[tuple[Ints, Floats]]:
        """Places and scores of the best for queries of one subset, among the `allowed` (n,) rows."""
        total = int(np.count_nonzero(allowed))
        if len(allowed) >= LARGE and total > FEW * len(allowed) and is_available():
            return self._best_of_candidates(query, k, allowed, similarity)
        return self._compare(query, k, allowed, similarity)

    def _best_of_candidates(
        self, query: Prepared, k: int, allowed: Bools, similarity: Similarity
    ) -> list[tuple[Ints, Floats]]:
        """The same, by comparing only rows that can be among the best."""
        gallery = self.arrays.prepared
        scale = self._row_scale(similarity, int(query.subset[0]))
        found = find_candidates(query, k, self.arrays.quantised, scale, gallery, allowed)
        first = found.best(k)
        scores = _scores(similarity, query, gallery[first])
        # The k-th best of some rows is at most that of all.
        limit = np.full(len(query), -np.inf, dtype=np.float32)
        if len(first) >= k:
            limit = np.partition(scores, len(first) - k, axis=1)[:, len(first) - k]
        places = found.above(limit)
        if len(places) > MOST * len(allowed):
            return self._compare(query, k, allowed, similarity)
        top = TopK(len(query), k)
        top.add(_scores(similarity, query, gallery[places]), 0)
        return [(places[chosen], scores) for chosen, scores in top.result()]

    def _row_scale(self, similarity: Similarity, subset: int) -> RowScale:
        """How dot products become scores; kept, as it is the same for every query of a subset."""
        known = self._scales.get(subset)
        if known is None or known[0] is not similarity:
            scale = row_scale(similarity, subset, self.arrays.prepared, self.arrays.quantised)
            self._scales[subset] = known = (similarity, scale)
        return known[1]

    def _compare(
        self, query: Prepared, k: int, allowed: Bools, similarity: Similarity
    ) -> list[tuple[Ints, Floats]]:
        """The same, by comparing every row."""
        gallery = self.arrays.prepared
        total = int(np.count_nonzero(allowed))
        top = TopK(len(query), k)
        if total <= FEW * len(allowed):
            places = np.flatnonzero(allowed)
            for start in range(0, total, PIECE):
                top.add(_scores(similarity, query, gallery[places[start : start + PIECE]]), start)
            return [(places[found], scores) for found, scores in top.result()]
        for start in range(0, len(allowed), PIECE):
            some = slice(start, start + PIECE)
            scores = _scores(similarity, query, gallery[some])
            if not allowed[some].all():
                scores[:, ~allowed[some]] = -np.inf
            top.add(scores, start)
        return top.result()


def _scores(similarity: Similarity, query: Prepared, gallery: Prepared) -> Floats:
    scores = similarity.scores(query, gallery)
    scores[np.isnan(scores)] = -np.inf
    return scores


class TopK:
    """The k best of scores (Q, n) that come in pieces; of equal ones the first come first."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.scores: Floats = np.full((queries, 0), -np.inf, dtype=np.float32)
        self.places: Ints = np.zeros((queries, 0), dtype=np.int64)

    def add(self, scores: Floats, start: int) -> None:
        """Scores (Q, n) of the places from `start`; −inf = never."""
        Q, n = scores.shape
        if n > 4 * self.k:
            best = np.argpartition(scores, n - self.k, axis=1)[:, n - self.k :]
            scores = np.take_along_axis(scores, best, axis=1)
        else:
            best = np.broadcast_to(np.arange(n), (Q, n))
        self.scores = np.concatenate([self.scores, scores], axis=1)
        self.places = np.concatenate([self.places, best + start], axis=1)
        if self.scores.shape[1] > 64 * self.k:
            self._shrink()

    def _shrink(self) -> None:
        """Keep the k best, best first."""
        order = np.lexsort((self.places, -self.scores), axis=1)[:, : self.k]
        self.scores = np.take_along_axis(self.scores, order, axis=1)
        self.places = np.take_along_axis(self.places, order, axis=1)

    def result(self) -> list[tuple[Ints, Floats]]:
        """Per query places and scores, best first; fewer than k where there are no more."""
        self._shrink()
        there = np.isfinite(self.scores)
        return [(p[ok], s[ok]) for p, s, ok in zip(self.places, self.scores, there, strict=True)]
