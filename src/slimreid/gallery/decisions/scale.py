"""One scale for scores of all pairs of subsets of the modalities, from a site's own samples.

A model file says how alike different training identities are. Identities that were not in training are more
alike, and not equally so for every pair of subsets, so the figures are estimated again where enough
identities of the site were seen in both subsets. For the other pairs the training figures are moved as those
of the known pairs have moved on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slimreid.arrays import Bools, Floats, Ints
from slimreid.errors import DataError
from slimreid.gallery.decisions.rates import LEAST_IDENTITIES
from slimreid.gallery.decisions.searches import Names
from slimreid.inference.similarity import Similarity, fit_impostors

MOST_SAMPLES = 1500
"""Samples of a subset that are compared with each other; more would cost time and change little."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Features (n, D) of n samples with the modalities `present` (n, M) and identities (n,)."""

    features: Floats
    present: Bools
    identity: Names

    def __post_init__(self) -> None:
        if not len(self.features) == len(self.present) == len(self.identity):
            raise DataError(
                f"features, present and identity must be of one length, not {len(self.features)}, "
                f"{len(self.present)} and {len(self.identity)}"
            )


def site_similarity(similarity: Similarity, samples: Samples) -> Similarity:
    """`similarity` with figures of a site's own identities; unchanged where there are too few of them.

    Raises `DataError` for features or masks that do not fit the similarity.
    """
    subset = similarity.subset_numbers(samples.present, len(samples.features))
    numbers = np.unique(samples.identity, return_inverse=True)[1].reshape(-1)
    parts, enough = [], []
    for number in range(len(similarity.subsets)):
        rows = in_turn(numbers, np.flatnonzero(subset == number))[:MOST_SAMPLES]
        enough.append(len(np.unique(numbers[rows])) >= LEAST_IDENTITIES)
        rows = rows if enough[-1] else rows[:0]
        parts.append((samples.features[rows], numbers[rows]))
    known = np.logical_and.outer(enough, enough) & similarity.shares
    found = fit_impostors(similarity, parts) if known.any() else None
    if found is None:
        return similarity
    if similarity.impostors is not None:
        found = np.where(known[..., None], found, _moved(similarity.impostors, found, known))
    return replace(similarity, impostors=found)


def in_turn(numbers: Ints, rows: Ints) -> Ints:
    """`rows` in an order that takes one of each identity, then a second of each, and so on."""
    taken: dict[int, int] = {}
    turns = []
    for row in rows.tolist():
        turns.append(taken.get(int(numbers[row]), 0))
        taken[int(numbers[row])] = turns[-1] + 1
    return rows[np.argsort(turns, kind="stable")]


def _moved(trained: Floats, found: Floats, known: Bools) -> Floats:
    """Training figures (S, S, 2), moved as those of the known pairs moved, in units of the training scale."""
    low, width = trained[..., 0], trained[..., 1] - trained[..., 0]
    shift = ((found - low[..., None]) / width[..., None])[known].mean(axis=0)
    moved: Floats = low[..., None] + width[..., None] * shift
    return moved.astype(np.float32)
