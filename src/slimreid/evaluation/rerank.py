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
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from slimreid.errors import ConfigError
from slimreid.evaluation.inputs import Features, as_feature_pair
from slimreid.evaluation.ranking import nearest
from slimreid.evaluation.scores import find_repeats, inverse, tie_repeats

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_PAIRS_AT_ONCE = 2048
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
    of all features, a few dozen numbers per item, and chunks.
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
        rows = max(1, int(chunk_megabytes * 2**20 // (3 * 4 * self._distances.items)))
        neighbours, self._farthest = _neighbourhood(self._distances, self.options, rows)
        codes = encode(neighbours, self._distances, self._farthest, self.options)
        self._query_codes = codes[: self._queries]
        self._gallery_codes = codes[self._queries :].tocsc()

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self._queries, self._distances.items - self._queries

    def scores(self, start: int, stop: int) -> Tensor:
        """Minus the re-ranked distances (stop − start, G)."""
        scores = self._distances.rows(start, stop, first=self._queries)
        scores.div_(self._farthest[start:stop, None]).mul_(-self.options.original_weight)
        overlap = torch.from_numpy(shared_weight(self._query_codes[start:stop], self._gallery_codes))
        jaccard = 1 - overlap / (2 - overlap)
        return scores.sub_(jaccard.to(scores), alpha=1 - self.options.original_weight)

    def distances(self, scores: Tensor) -> Tensor:
        """The re-ranked distances."""
        return -scores


class _SquaredDistances:
    """Squared Euclidean distances among all N = Q + G items, some rows at a time."""

    def __init__(self, query_features: Features, gallery_features: Features, normalize: bool) -> None:
        query, gallery, query_norms, gallery_norms = as_feature_pair(query_features, gallery_features)
        self.queries, self.items = len(query), len(query) + len(gallery)
        norms = torch.cat([query_norms, gallery_norms])
        self._features = torch.cat([query, gallery])
        if normalize:
            self._features *= inverse(norms).to(query.dtype)[:, None]
            norms = (norms > 0).double()
        self._squares = norms.square().to(query.dtype)
        self._repeats = find_repeats(self._features)

    def rows(self, start: int, stop: int, first: int = 0) -> Tensor:
        """Distances of items `start` to `stop` to the items from `first` on, (stop − start, N − first)."""
        product = self._features[start:stop] @ self._features.T
        product.mul_(-2).add_(self._squares[start:stop, None]).add_(self._squares)
        return tie_repeats(product, self._repeats).clamp_(min=0)[:, first:]

    def pairs(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Distances (P,) of single pairs."""
        parts = []
        for r, c in zip(torch.split(rows, _PAIRS_AT_ONCE), torch.split(columns, _PAIRS_AT_ONCE), strict=True):
            product = (self._features[r] * self._features[c]).sum(dim=1)
            parts.append((self._squares[r] + self._squares[c] - 2 * product).clamp_(min=0))
        return torch.cat(parts) if parts else self._squares[:0]


def _neighbourhood(distances: _SquaredDistances, options: KReciprocal, rows: int) -> tuple[Ints, Tensor]:
    """The k1 + 1 nearest items of each item, itself among them (N, K), and its largest distance (N,)."""
    K = min(distances.items, max(options.k1 + 1, options.k2))
    neighbours = np.empty((distances.items, K), dtype=np.int64)
    farthest = []
    for start in range(0, distances.items, rows):
        stop = min(distances.items, start + rows)
        part = distances.rows(start, stop)
        farthest.append(part.amax(dim=1))
        neighbours[start:stop] = nearest(part.neg_(), K)[0].cpu().numpy()
    return neighbours, torch.cat(farthest).clamp_(min=_TINY)


def encode(
    neighbours: Ints, distances: _SquaredDistances, farthest: Tensor, options: KReciprocal
) -> sparse.csr_array:
    """Describe each item by its expanded reciprocal neighbours: a sparse (N, N), rows summing to 1."""
    N, K = neighbours.shape
    half = int(np.around(options.k1 / 2))
    mutual = reciprocal_neighbours(neighbours[:, : options.k1 + 1])
    described_by = expand(mutual, reciprocal_neighbours(neighbours[:, : half + 1])).tocoo()
    rows, columns = (torch.from_numpy(part.astype(np.int64)) for part in described_by.coords)
    device = farthest.device
    distance = distances.pairs(rows.to(device), columns.to(device)) / farthest[rows.to(device)]
    weight = np.exp(-distance.cpu().numpy())
    total = np.bincount(rows.numpy(), weights=weight, minlength=N)
    codes = sparse.csr_array((weight / total[rows.numpy()], described_by.coords), shape=(N, N))
    if options.k2 > 1:
        k2 = min(options.k2, K)
        averaged = (np.full(N * k2, 1 / k2), (np.repeat(np.arange(N), k2), neighbours[:, :k2].ravel()))
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
    return mutual + chosen @ close


def shared_weight(query_codes: sparse.csr_array, gallery_codes: sparse.csc_array) -> Floats:
    """Σ min(code of query, code of gallery item), (b, G), from codes (b, N) and (G, N)."""
    B, G = query_codes.shape[0], gallery_codes.shape[0]
    shared = np.empty((B, G), dtype=np.float32)
    for b in range(B):
        entries = slice(query_codes.indptr[b], query_codes.indptr[b + 1])
        column, weight = query_codes.indices[entries], query_codes.data[entries]
        first = gallery_codes.indptr[column]
        count = gallery_codes.indptr[column + 1] - first
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        at = np.repeat(first, count) + within
        smaller = np.minimum(np.repeat(weight, count), gallery_codes.data[at])
        shared[b] = np.bincount(gallery_codes.indices[at], weights=smaller, minlength=G)
    return shared
