"""Exact search in memory, with filters, in a gallery whose samples may lack modalities."""

from __future__ import annotations

import numpy as np

from slimreid.gallery.index.columns import Bools, Columns
from slimreid.gallery.index.sidecar import Arrays
from slimreid.gallery.index.topk import TopK
from slimreid.gallery.store.rows import Filter, Floats, Found, Ints
from slimreid.inference.similarity import Prepared, Similarity

PIECE = 16_384
"""Rows compared at once: with 32 queries their scores stay in the processor's cache."""
FEW = 0.3
"""Share of rows up to which those that a filter means are gathered before they are compared."""


class MemoryIndex:
    """Features and columns of a gallery, for one process."""

    def __init__(self, similarity: Similarity, arrays: Arrays, columns: Columns) -> None:
        self.similarity, self.arrays, self.columns = similarity, arrays, columns
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
            allowed = self._allowed(chosen, int(a))
            best = self._best(query[members], k, allowed, similarity)
            for number, (places, scores) in zip(members, best, strict=True):
                rows = places if self._at is None else self._at[places]
                names = self.columns.names("identity", rows)
                results[number] = Found(self.columns.ids[rows], scores, names)
        return [found for found in results if found is not None]

    def _allowed(self, chosen: Bools, subset: int) -> Bools:
        """(n,): the rows of a filter that share something with queries of a subset."""
        shares = self.similarity.shares[subset]
        if shares.all():
            return chosen
        return np.asarray(chosen & shares[self.arrays.prepared.subset])

    def _best(
        self, query: Prepared, k: int, allowed: Bools, similarity: Similarity
    ) -> list[tuple[Ints, Floats]]:
        """Places and scores of the best for queries of one subset."""
        gallery = self.arrays.prepared
        total = int(allowed.sum())
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
