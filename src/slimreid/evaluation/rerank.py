"""Re-ranking by k-reciprocal encoding (Zhong et al., CVPR 2017), on sparse neighbourhoods.

Two items that count each other among their k1 nearest are likely the same. Every item is described by its
reciprocal neighbours, and two items are near if their descriptions overlap (Jaccard distance). A description
has a few dozen entries out of thousands, so everything but the distances themselves is sparse here; the full
matrix of distances is only ever seen a few rows at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from slimreid.errors import ConfigError
from slimreid.evaluation.inputs import Features, as_feature_pair
from slimreid.evaluation.ranking import nearest
from slimreid.evaluation.scores import inverse

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_TINY = 1e-12


@dataclass(frozen=True)
class KReciprocal:
    """Options of k-reciprocal re-ranking; contradictions raise `ConfigError`."""

    k1: int = 20
    """Neighbours that must count each other."""
    k2: int = 6
    """Nearest items over which a description is averaged; 1 switches that off."""
    original_weight: float = 0.3
    """Weight λ of the original distance, in [0, 1]; the Jaccard distance has the rest."""

    def __post_init__(self) -> None:
        if self.k1 < 1 or self.k2 < 1:
            raise ConfigError(f"k1 and k2 must be at least 1, not {self.k1} and {self.k2}")
        if not 0 <= self.original_weight <= 1:
            raise ConfigError(f"original_weight must lie in [0, 1], not {self.original_weight}")


class RerankedScores:
    """Minus the re-ranked distances, which lie in [0, 1]; a source for `evaluate_scores`.

    Distance = λ · d² / (largest d² of the query) + (1 − λ) · Jaccard distance, d² the squared Euclidean
    distance of the (normalised) features. Query and gallery together are N = Q + G items. Memory: one copy
    of all features, a few dozen numbers per item, chunks, and the distances of all queries to the gallery if
    they fit into one chunk (otherwise they are computed twice).
    """

    bounded = True

    def __init__(
        self,
        query_features: Features,
        gallery_features: Features,
        options: KReciprocal | None = None,
        normalize: bool = True,
        chunk_megabytes: float = 96.0,
    ) -> None:
        self.options = options or KReciprocal()
        self._distances = _SquaredDistances(query_features, gallery_features, normalize)
        self._queries = self._distances.queries
        Q, G = self.shape
        # Going through all pairs costs most of the time, so what will be asked again is kept if it is small.
        fits = Q * G * self._distances.features.element_size() <= chunk_megabytes * 2**20
        self._kept = self._distances.features.new_empty(Q, G) if fits else None
        rows = max(1, int(chunk_megabytes * 2**20 // (3 * 4 * (Q + G))))
        neighbours, self._farthest = _neighbourhood(self._distances, self.options, rows, self._kept)
        codes = encode(neighbours, self._distances, self._farthest, self.options)
        self._query_codes = codes[:Q]
        self._gallery_codes = codes[Q:].tocsc()

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self._queries, self._distances.items - self._queries

    def scores(self, start: int, stop: int) -> Tensor:
        """Minus the re-ranked distances (stop − start, G)."""
        weight = self.options.original_weight
        scale = -weight / self._farthest[start:stop, None]
        if self._kept is not None:
            scores = self._kept[start:stop] * scale
        else:
            scores = self._distances.block(start, stop, first=self._queries).mul_(scale)
        shared = torch.from_numpy(shared_weight(self._query_codes[start:stop], self._gallery_codes))
        shared = shared.to(scores)
        # Jaccard distance = 1 − shared / (2 − shared), since every code sums to 1.
        return scores.add_(shared.div_(2 - shared), alpha=1 - weight).sub_(1 - weight)

    def distances(self, scores: Tensor) -> Tensor:
        """The re-ranked distances."""
        return -scores


class _SquaredDistances:
    """Squared Euclidean distances among all N = Q + G items, some rows at a time."""

    def __init__(self, query_features: Features, gallery_features: Features, normalize: bool) -> None:
        query, gallery, query_norms, gallery_norms = as_feature_pair(query_features, gallery_features)
        self.queries, self.items = len(query), len(query) + len(gallery)
        norms = torch.cat([query_norms, gallery_norms])
        self.features = torch.cat([query, gallery])
        if normalize:
            self.features *= inverse(norms).to(query.dtype)[:, None]
            norms = (norms > 0).double()
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


def _neighbourhood(
    distances: _SquaredDistances, options: KReciprocal, rows: int, kept: Tensor | None
) -> tuple[Ints, Tensor]:
    """The k1 + 1 nearest items of each item, itself among them (N, K), and its largest distance (N,).

    Distances are symmetric: a block right of the diagonal serves its rows, and its columns in later blocks.
    Those of queries to the gallery are written to `kept` (Q, G), if it is there.
    """
    Q, N = distances.queries, distances.items
    K = min(N, max(options.k1 + 1, options.k2))
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
        best.merge(slice(start, stop), block, first=start)
        best.merge(slice(stop, N), right.T, first=start)
    return best.item.cpu().numpy(), farthest


@dataclass
class _Best:
    """The best items so far of N rows: `score` and `item`, (N, K) each, best first."""

    score: Tensor
    item: Tensor

    @classmethod
    def empty(cls, N: int, K: int, like: Tensor) -> _Best:
        score = like.new_full((N, K), -torch.inf)
        return cls(score, torch.full_like(score, -1, dtype=torch.int64))

    def merge(self, rows: slice, scores: Tensor, first: int) -> None:
        """Let the items from number `first` on, with scores (rows, any), compete with the best so far."""
        K = self.score.shape[1]
        position, score = nearest(torch.cat([self.score[rows], scores], dim=1), K)
        earlier = self.item[rows].gather(1, position.clamp(0, K - 1))
        self.item[rows] = torch.where(position < K, earlier, position + (first - K))
        self.score[rows] = score


def encode(
    neighbours: Ints, distances: _SquaredDistances, farthest: Tensor, options: KReciprocal
) -> sparse.csr_array:
    """Describe each item by its expanded reciprocal neighbours: a sparse (N, N), rows summing to 1."""
    N, K = neighbours.shape
    half = int(np.around(options.k1 / 2))
    mutual = reciprocal_neighbours(neighbours[:, : options.k1 + 1])
    codes = expand(mutual, reciprocal_neighbours(neighbours[:, : half + 1]))
    rows = np.repeat(np.arange(N), np.diff(codes.indptr))
    weight = np.exp(-distances.at(codes).cpu().numpy() / farthest.cpu().numpy()[rows])
    codes.data = (weight / np.bincount(rows, weights=weight, minlength=N)[rows]).astype(np.float32)
    if options.k2 > 1:
        k2 = min(options.k2, K)
        averaged = (
            np.full(N * k2, 1 / k2, dtype=np.float32),
            (np.repeat(np.arange(N), k2), neighbours[:, :k2].ravel()),
        )
        codes = sparse.csr_array(averaged, shape=(N, N)) @ codes
    return codes


def reciprocal_neighbours(neighbours: Ints) -> sparse.csr_array:
    """Which of the K nearest (N, K) of each item count it among their own: ones in a sparse (N, N)."""
    N, K = neighbours.shape
    mutual = np.empty((N, K), dtype=np.bool_)
    step = max(1, 2**21 // K**2)
    for start in range(0, N, step):
        part = neighbours[start : start + step]
        own = np.arange(start, start + len(part))[:, None, None]
        mutual[start : start + step] = (neighbours[part] == own).any(axis=2)
    rows, slots = mutual.nonzero()
    ones = np.ones(len(rows), dtype=np.int32)
    return sparse.csr_array((ones, (rows, neighbours[rows, slots])), shape=(N, N))


def expand(mutual: sparse.csr_array, close: sparse.csr_array) -> sparse.csr_array:
    """Add the close neighbours of a neighbour that are mostly (over two thirds) mutual neighbours already.

    `mutual`, `close`: ones in sparse (N, N), from k1 and from half as many neighbours.
    """
    common = (mutual @ close.T).multiply(mutual).tocoo()
    size = np.asarray(close.sum(axis=1)).ravel()
    trusted = 3 * common.data > 2 * size[common.coords[1]]
    ones = np.ones(int(trusted.sum()), dtype=np.int32)
    chosen = sparse.csr_array((ones, tuple(c[trusted] for c in common.coords)), shape=mutual.shape)
    expanded = mutual + chosen @ close
    expanded.sort_indices()
    return expanded


def shared_weight(query_codes: sparse.csr_array, gallery_codes: sparse.csc_array) -> Floats:
    """Σ min(code of query, code of gallery item), (b, G), from codes (b, N) and (G, N)."""
    B, G = query_codes.shape[0], gallery_codes.shape[0]
    shared = np.empty((B, G), dtype=np.float32)
    for b in range(B):
        entries = slice(query_codes.indptr[b], query_codes.indptr[b + 1])
        column, weight = query_codes.indices[entries], query_codes.data[entries]
        first = gallery_codes.indptr[column]
        count = gallery_codes.indptr[column + 1] - first
        # Entry number n of a column lies at its first + n; all columns one after the other.
        at = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum(), dtype=first.dtype)
        smaller = np.minimum(np.repeat(weight, count), gallery_codes.data[at])
        shared[b] = np.bincount(gallery_codes.indices[at], weights=smaller, minlength=G)
    return shared
