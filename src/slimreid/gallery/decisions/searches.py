"""What searches found, as far as error rates need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slimreid.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Names = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Searches:
    """n searches for samples whose identity is known.

    Each tells what a stranger of this look would have got (`other`), and, where the identity is enrolled,
    what its own rows scored (`own`).
    """

    identity: Names
    """(n,): who was searched for."""
    other: Floats
    """(n,): best score of any other identity; NaN where no row shares a modality with the sample."""
    own: Floats
    """(n,): best score of the own identity; NaN where it is not enrolled, or shares no modality."""
    subset: Names
    """(n,): name of the subset of the modalities that the sample has, as `subset_name` gives it."""

    def __post_init__(self) -> None:
        n = len(self.identity)
        for name in ("other", "own", "subset"):
            if getattr(self, name).shape != (n,):
                raise DataError(f"{name} must be ({n},), one per search, not {getattr(self, name).shape}")

    def __len__(self) -> int:
        return len(self.identity)

    def __getitem__(self, rows: Bools | Ints | slice) -> Searches:
        return Searches(self.identity[rows], self.other[rows], self.own[rows], self.subset[rows])

    @property
    def comparable(self) -> Bools:
        """(n,): whether anybody else could be compared with the sample at all."""
        return ~np.isnan(self.other)

    @property
    def mated(self) -> Bools:
        """(n,): whether the own identity could be found."""
        return ~np.isnan(self.own)


def join_searches(parts: Sequence[Searches]) -> Searches:
    """One after the other; raises `DataError` for none."""
    if not parts:
        raise DataError("there are no searches to join")
    names = ("identity", "other", "own", "subset")
    return Searches(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def search_outcomes(
    scores: ArrayLike,
    query_ids: ArrayLike,
    row_ids: ArrayLike,
    subset: ArrayLike,
    ignore: ArrayLike | None = None,
) -> Searches:
    """What queries found in a gallery: best score of the own identity, and of all others.

    Args:
        scores: (Q, G) as `Similarity.scores` gives them; NaN where a pair shares no modality.
        query_ids: (Q,) identities of the queries.
        row_ids: (G,) identities of the rows.
        subset: (Q,) names of the queries' subsets of the modalities.
        ignore: (Q, G) bool, pairs that do not count: the query itself, rows of its own tracklet or camera.

    Raises:
        DataError: For shapes that do not fit.
    """
    values = np.asarray(scores, dtype=np.float64)
    queries, rows = np.asarray(query_ids), np.asarray(row_ids)
    if values.shape != (len(queries), len(rows)):
        raise DataError(f"scores must be ({len(queries)}, {len(rows)}), not {values.shape}")
    valid = ~np.isnan(values)
    if ignore is not None:
        left_out = np.asarray(ignore, dtype=np.bool_)
        if left_out.shape != values.shape:
            raise DataError(f"ignore must be {values.shape}, not {left_out.shape}")
        valid &= ~left_out
    same = queries[:, None] == rows[None, :]
    return Searches(queries, _best(values, valid & ~same), _best(values, valid & same), np.asarray(subset))


def _best(values: Floats, counted: Bools) -> Floats:
    """Highest counted value of each row (Q,); NaN where none counts."""
    highest = np.where(counted, values, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(counted.any(axis=1), highest, np.nan)
