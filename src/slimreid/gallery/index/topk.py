"""The k best of many scores, piece by piece."""

from __future__ import annotations

import numpy as np

from slimreid.gallery.store.rows import Floats, Ints


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
