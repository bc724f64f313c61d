"""The nearest neighbours of every item among all items, without the whole matrix of distances."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from slimreid.arrays import Ints
from slimreid.evaluation.metrics.labels import Features, as_feature_pair
from slimreid.evaluation.metrics.ranking import nearest
from slimreid.evaluation.metrics.scores import inverse, refuse_overflow

_TINY = 1e-12
"""Least largest distance, so that items that are all the same can be divided by it."""


class SquaredDistances:
    """Squared Euclidean distances among N = Q + G items, queries first, some rows at a time."""

    def __init__(self, query_features: Features, gallery_features: Features, normalize: bool) -> None:
        query, gallery, query_norms, gallery_norms = as_feature_pair(query_features, gallery_features)
        self.queries, self.items = len(query), len(query) + len(gallery)
        norms = torch.cat([query_norms, gallery_norms])
        self.features = torch.cat([query, gallery])
        if normalize:
            self.features *= inverse(norms).to(query.dtype)[:, None]
            norms = (norms > 0).double()
        else:
            refuse_overflow(query_norms, gallery_norms)
        self._squares = norms.square().to(query.dtype)

    def block(self, start: int, stop: int, first: int) -> Tensor:
        """Distances of items `start` to `stop` to the items from `first` on, (stop − start, N − first)."""
        product = self.features[start:stop] @ self.features[first:].T
        squares = self._squares[start:stop, None], self._squares[first:]
        return product.mul_(-2).add_(squares[0]).add_(squares[1]).clamp_(min=0)

    def at(self, pattern: sparse.csr_array) -> Tensor:
        """Distances at the entries of a sparse (N, N), in their order."""
        device = self.features.device
        starts, columns = (
            torch.from_numpy(part.astype(np.int64)).to(device) for part in (pattern.indptr, pattern.indices)
        )
        zeros = torch.zeros(len(columns), dtype=self.features.dtype, device=device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            grid = torch.sparse_csr_tensor(starts, columns, zeros, pattern.shape, check_invariants=True)
            sampled: Tensor = torch.sparse.sampled_addmm(grid, self.features, self.features.T, beta=0.0)
        rows = torch.repeat_interleave(starts.diff())
        return (self._squares[rows] + self._squares[columns] - 2 * sampled.values()).clamp_(min=0)


def find_neighbours(
    distances: SquaredDistances, number: int, rows: int, kept: Tensor | None = None
) -> tuple[Ints, Tensor]:
    """The nearest items of each item, itself among them (N, K ≤ number), and its largest distance (N,).

    Distances are symmetric: a block right of the diagonal serves its rows, and its columns in later blocks.
    Those of queries to the gallery are written to `kept` (Q, G), if it is there.
    """
    Q, N = distances.queries, distances.items
    K = min(N, number)
    best = _Best.empty(N, K, distances.features)
    farthest = distances.features.new_full((N,), _TINY)
    for start in range(0, N, rows):
        stop = min(N, start + rows)
        block = distances.block(start, stop, first=start)
        if kept is not None and start < Q:
            kept[start:stop] = block[: Q - start, Q - start :]
        right = block[:, stop - start :]
        farthest[start:stop] = torch.maximum(farthest[start:stop], block.amax(dim=1))
        if stop < N:
            farthest[stop:] = torch.maximum(farthest[stop:], right.amax(dim=0))
        block.neg_()
        best.offer(slice(start, stop), block, first=start)
        best.offer_columns(slice(stop, N), right, first=start)
    return best.item.cpu().numpy(), farthest


@dataclass
class _Best:
    """The best items so far of N rows: `score` and `item`, (N, K) each, best first.

    Items are offered in the order of their numbers, so that among equal scores the earlier offer stays.
    """

    score: Tensor
    item: Tensor

    @classmethod
    def empty(cls, N: int, K: int, like: Tensor) -> _Best:
        score = like.new_full((N, K), -torch.inf)
        return cls(score, torch.full_like(score, -1, dtype=torch.int64))

    def offer(self, rows: slice, scores: Tensor, first: int) -> None:
        """Offer the items from number `first` on, with scores (rows, items), to these rows."""
        position, score = nearest(scores, self.score.shape[1])
        self._merge(rows, score, position + first)

    def offer_columns(self, rows: slice, scores: Tensor, first: int) -> None:
        """The same with scores (items, rows): only those that beat a row's worst are looked at."""
        bar = self.score[rows, -1]
        if not bool(bar.isfinite().all()):
            self.offer(rows, scores.T.contiguous(), first)
            return
        M = len(bar)
        flat = (scores > bar).flatten().nonzero().flatten()
        row, by_row = (flat % max(1, M)).sort(stable=True)
        item = flat[by_row] // max(1, M)
        count = torch.bincount(row, minlength=M)
        first_of_row = torch.repeat_interleave(count.cumsum(0) - count, count)
        slot = torch.arange(len(row), device=row.device) - first_of_row
        width = int(count.max()) if len(row) else 0
        better = self.score.new_full((M, width), -torch.inf)
        better[row, slot] = scores[item, row]
        number = torch.full_like(better, -1, dtype=torch.int64)
        number[row, slot] = item + first
        self._merge(rows, better, number)

    def _merge(self, rows: slice, score: Tensor, item: Tensor) -> None:
        numbers = torch.cat([self.item[rows], item], dim=1)
        position, self.score[rows] = nearest(torch.cat([self.score[rows], score], dim=1), self.score.shape[1])
        self.item[rows] = numbers.gather(1, position.clamp(min=0))
