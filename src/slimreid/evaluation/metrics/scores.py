"""Scores of queries against the gallery, a few rows at a time, never the whole matrix."""

from __future__ import annotations

from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor

from slimreid.errors import DataError
from slimreid.evaluation.metrics.labels import Features, as_feature_pair
from slimreid.inference.similarity import Prepared, Similarity

NO_SIMILARITY = float(np.finfo(np.float32).min)
"""Score of a pair that cannot be compared: it ranks behind all others, in the order of the gallery."""
_LARGEST_SQUARE = 1e37
"""Squared norms above this overflow in float32 once doubled."""


class ScoreSource(Interface):
    """Anything that can score queries against the gallery: a larger score ranks nearer."""

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""

    def scores(self, start: int, stop: int) -> Tensor:
        """A new tensor (stop − start, G) for the queries `start` to `stop`; the caller may change it."""


class _FeatureScores:
    """What scores of features (Q, D) and (G, D) need: both sides, their norms, and repeated gallery rows."""

    def __init__(self, query_features: Features, gallery_features: Features) -> None:
        self._query, self._gallery, *self._norms = as_feature_pair(query_features, gallery_features)
        self._repeats = find_repeats(self._gallery)

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return len(self._query), len(self._gallery)


class CosineScores(_FeatureScores):
    """Cosine similarity; its order is that of the Euclidean distance of L2-normalised features.

    Normalises queries row by row and scales the product by the norms of the gallery, so that no second copy
    of the gallery is made. A row of zeros has similarity 0 with everything.
    """

    def __init__(self, query_features: Features, gallery_features: Features) -> None:
        super().__init__(query_features, gallery_features)
        self._query_scale, self._gallery_scale = (inverse(n).to(self._query.dtype) for n in self._norms)

    def scores(self, start: int, stop: int) -> Tensor:
        """Similarities (stop − start, G)."""
        query = self._query[start:stop] * self._query_scale[start:stop, None]
        return tie_repeats((query @ self._gallery.T).mul_(self._gallery_scale), self._repeats)


class EuclideanScores(_FeatureScores):
    """Minus the squared Euclidean distance of the features as they are."""

    def __init__(self, query_features: Features, gallery_features: Features) -> None:
        super().__init__(query_features, gallery_features)
        refuse_overflow(*self._norms)
        self._query_square, self._gallery_square = (n.square().to(self._query.dtype) for n in self._norms)

    def scores(self, start: int, stop: int) -> Tensor:
        """Minus the squared distances (stop − start, G)."""
        product = (self._query[start:stop] @ self._gallery.T).mul_(2)
        scores = product.sub_(self._query_square[start:stop, None]).sub_(self._gallery_square)
        return tie_repeats(scores, self._repeats)


class SimilarityScores:
    """Scores by a model's similarity, for samples that were seen in different modalities.

    Pairs that share nothing get `NO_SIMILARITY`.
    """

    def __init__(self, similarity: Similarity, query: Prepared, gallery: Prepared) -> None:
        self._similarity, self._query, self._gallery = similarity, query, gallery
        repeats = find_repeats(torch.from_numpy(gallery.values))
        if repeats is not None:
            later, earlier = repeats
            # As arrays: numpy takes a tensor of one number for that number.
            same = torch.from_numpy(gallery.subset[later.numpy()] == gallery.subset[earlier.numpy()])
            repeats = later[same], earlier[same]
        self._repeats = repeats

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return len(self._query), len(self._gallery)

    def scores(self, start: int, stop: int) -> Tensor:
        """Similarities (stop − start, G)."""
        found = torch.from_numpy(self._similarity.scores(self._query[start:stop], self._gallery))
        return tie_repeats(found.nan_to_num_(nan=NO_SIMILARITY), self._repeats)


def refuse_overflow(query_norms: Tensor, gallery_norms: Tensor) -> None:
    """Raise `DataError` for a row whose squared norm, from (Q,) and (G,), does not fit into float32."""
    for name, norms in (("query_features", query_norms), ("gallery_features", gallery_norms)):
        if bool((norms.square() > _LARGEST_SQUARE).any()):
            row = int(norms.argmax())
            raise DataError(f"{name}: row {row} is too long to be squared; normalise the features")


def inverse(norms: Tensor) -> Tensor:
    """1 / norm, and 0 for a row of zeros, which so stays zero."""
    return torch.where(norms > 0, 1 / norms, 0)


def find_repeats(gallery: Tensor) -> tuple[Tensor, Tensor] | None:
    """Gallery rows equal to an earlier one, and that earlier one.

    A matrix product may round equal columns differently in different places, which would make the order of
    equal items a matter of chance.
    """
    rows = gallery.cpu().numpy()
    starts = np.ascontiguousarray(rows[:, :8])
    starts = starts.view(np.dtype((np.void, starts.dtype.itemsize * starts.shape[1]))).reshape(-1)
    _, group, size = np.unique(starts, return_inverse=True, return_counts=True)
    first: dict[bytes | int, list[int]] = {}
    later, earlier = [], []
    for row in np.flatnonzero(size[group.reshape(-1)] > 1).tolist():
        same_hash = first.setdefault(hash(rows[row].tobytes()), [])
        origin = next((other for other in same_hash if np.array_equal(rows[other], rows[row])), None)
        if origin is None:
            same_hash.append(row)
        else:
            later.append(row)
            earlier.append(origin)
    if not later:
        return None
    return torch.tensor(later, device=gallery.device), torch.tensor(earlier, device=gallery.device)


def tie_repeats(scores: Tensor, repeats: tuple[Tensor, Tensor] | None) -> Tensor:
    """Give repeated gallery rows exactly the scores (b, G) of the first of them, in place."""
    if repeats is not None:
        later, earlier = repeats
        scores[:, later] = scores[:, earlier]
    return scores
