"""Re-ranking by k-reciprocal encoding (Zhong et al., CVPR 2017), on sparse neighbourhoods.

Two items that count each other among their k1 nearest are likely the same. Every item is described by its
reciprocal neighbours, and two items are near if their descriptions overlap (Jaccard distance). A description
has a few dozen entries out of thousands, so everything but the distances themselves is sparse here; the full
matrix of distances is only ever seen a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from slimreid.arrays import Floats, Ints
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.labels import Features
from slimreid.evaluation.metrics.neighbours import SquaredDistances, find_neighbours

_CODES_AT_ONCE = 8
"""Queries whose codes are compared at once: enough to hide Python, few enough to stay in the cache."""


@dataclass(frozen=True)
class KReciprocal:
    """Options of k-reciprocal re-ranking; contradictions raise `ConfigError`."""

    k1: int = 20
    """k1 of k-reciprocal re-ranking: neighbours that must have each other as neighbours."""
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

    def __init__(
        self,
        query_features: Features,
        gallery_features: Features,
        options: KReciprocal | None = None,
        normalize: bool = True,
        chunk_megabytes: float = 96.0,
    ) -> None:
        self.options = options or KReciprocal()
        self._distances = SquaredDistances(query_features, gallery_features, normalize)
        self._queries = self._distances.queries
        Q, G = self.shape
        # Going through all pairs costs most of the time, so what will be asked again is kept if it is small.
        fits = Q * G * self._distances.features.element_size() <= chunk_megabytes * 2**20
        self._kept = self._distances.features.new_empty(Q, G) if fits else None
        rows = max(1, int(chunk_megabytes * 2**20 // (3 * 4 * (Q + G))))
        number = max(self.options.k1 + 1, self.options.k2)
        neighbours, self._farthest = find_neighbours(self._distances, number, rows, self._kept)
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


def encode(
    neighbours: Ints, distances: SquaredDistances, farthest: Tensor, options: KReciprocal
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
        starts = np.arange(0, N * k2 + 1, k2, dtype=np.int32)
        columns = neighbours[:, :k2].ravel().astype(np.int32)
        averaged = (np.full(N * k2, 1 / k2, dtype=np.float32), columns, starts)
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
    starts = np.concatenate([[0], np.cumsum(mutual.sum(axis=1))]).astype(np.int32)
    columns = neighbours[mutual].astype(np.int32)
    found = sparse.csr_array((np.ones(len(columns), dtype=np.int32), columns, starts), shape=(N, N))
    found.sort_indices()
    return found


def expand(mutual: sparse.csr_array, close: sparse.csr_array) -> sparse.csr_array:
    """Add the close neighbours of a neighbour that are mostly (over two thirds) mutual neighbours already.

    `mutual`, `close`: ones in sparse (N, N), from k1 and from half as many neighbours.
    """
    common = (mutual @ close.T).multiply(mutual).tocoo()
    size = np.asarray(close.sum(axis=1)).ravel()
    trusted = 3 * common.data > 2 * size[common.col]
    ones = np.ones(int(trusted.sum()), dtype=np.int32)
    chosen = sparse.csr_array((ones, (common.row[trusted], common.col[trusted])), shape=mutual.shape)
    expanded = mutual + chosen @ close
    expanded.sort_indices()
    return expanded


def shared_weight(query_codes: sparse.csr_array, gallery_codes: sparse.csc_array) -> Floats:
    """Σ min(code of query, code of gallery item), (b, G), from codes (b, N) and (G, N)."""
    B, G = query_codes.shape[0], gallery_codes.shape[0]
    shared = np.empty((B, G), dtype=np.float32)
    for start in range(0, B, _CODES_AT_ONCE):
        stop = min(B, start + _CODES_AT_ONCE)
        entries = slice(query_codes.indptr[start], query_codes.indptr[stop])
        column = query_codes.indices[entries]
        first = gallery_codes.indptr[column]
        count = gallery_codes.indptr[column + 1] - first
        # Entry number n of a column lies at its first + n; the columns of all entries one after the other.
        at = np.repeat(first - (np.cumsum(count) - count), count)
        at += np.arange(len(at))
        smaller = np.minimum(np.repeat(query_codes.data[entries], count), gallery_codes.data[at])
        row = np.repeat(np.arange(stop - start), np.diff(query_codes.indptr[start : stop + 1]))
        cell = np.repeat(row * G, count)
        cell += gallery_codes.indices[at]
        counted = np.bincount(cell, weights=smaller, minlength=(stop - start) * G)
        shared[start:stop] = counted.reshape(stop - start, G)
    return shared
