"""One feature for several images of one object.

Each block of a feature is averaged over the shots that have it, weighted by their quality, so shots may have
different modalities. Shots are brought to the same length per block first: one with fewer modalities must not
weigh more in those it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from slimreid.arrays import Bools, Doubles, Floats, Ints
from slimreid.errors import DataError
from slimreid.inference.similarity import Similarity, presence


@dataclass(frozen=True, eq=False)
class Pooled:
    """Features (T, D), L2-normalised, of T tracklets, and the modalities (T, M) each was seen in."""

    features: Floats
    present: Bools
    groups: Ints
    """(T,): the tracklets' numbers, ascending."""


def pool_shots(
    similarity: Similarity,
    features: ArrayLike,
    present: ArrayLike | None = None,
    quality: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Pooled:
    """Pool shots into tracklets.

    Args:
        similarity: How the features are compared; says which block needs which modalities.
        features: (n, D) of the shots.
        present: (n, M), which modalities each shot has; None = all.
        quality: (n,), weights ≥ 0; None = all the same. Shots of a tracklet that are all worth nothing count
            equally.
        groups: (n,) whole numbers, which tracklet each shot belongs to; None = all to one.

    A block of several modalities that no single shot has is not known, even if all of them were seen: then
    the tracklet counts as seen in the largest subset of which every block is known.

    Raises:
        DataError: For shapes that do not fit, no shots, or a quality that is negative or not a number.
    """
    shots = similarity.prepare(features, present)
    n, D = shots.values.shape
    if not n:
        raise DataError("there are no shots to pool")
    numbers, member = np.unique(_column(groups, n, "groups", np.int64), return_inverse=True)
    weight = _weights(_column(quality, n, "quality", np.float64), member.reshape(-1), len(numbers))
    B, T = len(similarity.blocks), len(numbers)
    held = similarity.holds[shots.subset]  # (n, B)
    unit = shots.inverse_norms[:, -1] * np.sqrt(held.sum(axis=1))
    blocks = (shots.values * unit[:, None]).reshape(n, B, D // B)
    total, sums = np.zeros((T, B)), np.zeros((T, B, D // B))
    np.add.at(total, member.reshape(-1), weight[:, None] * held)
    np.add.at(sums, member.reshape(-1), weight[:, None, None] * blocks)
    mean = sums / np.where(total > 0, total, 1)[..., None]
    subset = _largest_known(similarity, total, member.reshape(-1), shots.subset)
    mean *= similarity.holds[subset][..., None]
    flat = mean.reshape(T, D)
    norm = np.linalg.norm(flat, axis=1, keepdims=True)
    seen = presence(similarity.modalities, similarity.subsets)
    return Pooled(
        (flat / np.where(norm > 0, norm, 1)).astype(np.float32), seen[subset], numbers.astype(np.int64)
    )


def _column(values: ArrayLike | None, n: int, name: str, kind: type) -> Doubles:
    column: Doubles = np.ones(n, dtype=kind) if values is None else np.asarray(values, dtype=kind)
    if column.shape != (n,):
        raise DataError(f"{name} must be ({n},), one per shot, not {column.shape}")
    return column


def _weights(quality: Doubles, member: Ints, tracklets: int) -> Doubles:
    """Quality (n,), or 1 for all shots of a tracklet where all are 0."""
    if not (np.isfinite(quality) & (quality >= 0)).all():
        raise DataError("quality must be numbers of at least 0")
    total = np.bincount(member, weights=quality, minlength=tracklets)
    return np.where(total[member] > 0, quality, 1.0)


def _largest_known(similarity: Similarity, total: Doubles, member: Ints, shot_subset: Ints) -> Ints:
    """Number of the subset (T,) that a tracklet counts as seen in; of equally large ones the better seen."""
    subsets, T = similarity.subsets, len(total)
    has = presence(similarity.modalities, subsets)
    union = np.zeros((T, has.shape[1]), dtype=np.bool_)
    np.logical_or.at(union, member, has[shot_subset])
    worth = np.full((T, len(subsets)), -1.0)
    for s, names in enumerate(subsets):
        blocks = similarity.holds[s]
        known = union[:, has[s]].all(axis=1) & (total[:, blocks] > 0).all(axis=1) & blocks.any()
        share = total[:, blocks].sum(axis=1) / (total.sum(axis=1) + 1)  # below 1: the size comes first
        worth[:, s] = np.where(known, len(names) + share, -1)
    best: Ints = worth.argmax(axis=1)
    return best
