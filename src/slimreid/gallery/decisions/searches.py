"""What searches found, as far as error rates need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Bools, Doubles, Ints
from slimreid.errors import DataError

Names = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Searches:
    """n searches for samples whose identity is known.

    Each tells what a stranger of this look would have got (`other`), and, where the identity is enrolled,
    what its own rows scored (`own`).
    """

    identity: Names
    """(n,): who was searched for."""
    other: Doubles
    """(n,): best score of any other identity; NaN where no row shares a modality with the sample."""
    own: Doubles
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
