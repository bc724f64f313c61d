"""How far a mAP could be off, had other identities been drawn.

Queries of one identity stand or fall together, so identities are resampled, not queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slimreid.errors import ConfigError, DataError

Floats = NDArray[np.float64]

_DRAWS_AT_ONCE = 2**22


class Precisions(Protocol):
    """What intervals are computed from: a `RetrievalResult`, or the part of one that a file keeps."""

    @property
    def protocol(self) -> str:
        """`camera`, `scene` or `none`."""

    @property
    def query_ids(self) -> NDArray[np.generic]:
        """(Q,)."""

    @property
    def average_precision(self) -> Floats:
        """(Q,), NaN for skipped queries."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(Q,): the queries that count."""

    @property
    def map(self) -> float:
        """Mean over the valid queries."""


@dataclass(frozen=True)
class Interval:
    """A value and the interval that holds the given share of its resamples."""

    value: float
    low: float
    high: float
    level: float
    samples: int

    def to_dict(self) -> dict[str, float | int]:
        """Ready for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class PairedDifference(Interval):
    """mAP of the second result minus that of the first, over the same resampled identities."""

    share_positive: float
    """Share of resamples in which the second is better (equal ones count half)."""

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def bootstrap_map(result: Precisions, *, samples: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """Percentile interval of the mAP over resampled identities.

    Raises `DataError` for fewer than two identities, `ConfigError` for an option out of range.
    """
    means = _resampled_means(result, [result.average_precision], samples, level, seed)[0]
    low, high = _percentiles(means, level)
    return Interval(result.map, low, high, level, samples)


def paired_bootstrap(
    first: Precisions,
    second: Precisions,
    *,
    samples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    """Interval of mAP(second) − mAP(first) over identities, both measured on the same queries.

    Raises `DataError` when the two do not have the same queries, matches and protocol.
    """
    if not np.array_equal(first.query_ids, second.query_ids):
        raise DataError("the two results have different queries; evaluate both on the same manifest")
    if first.protocol != second.protocol or not np.array_equal(first.valid, second.valid):
        raise DataError(
            f"the two results skip different queries (protocols '{first.protocol}' and '{second.protocol}'); "
            "evaluate both under the same protocol against the same gallery"
        )
    precisions = [first.average_precision, second.average_precision]
    means = _resampled_means(first, precisions, samples, level, seed)
    difference = means[1] - means[0]
    low, high = _percentiles(difference, level)
    positive = float((difference > 0).mean() + (difference == 0).mean() / 2)
    return PairedDifference(second.map - first.map, low, high, level, samples, positive)


def _resampled_means(
    result: Precisions, values: list[Floats], samples: int, level: float, seed: int
) -> list[Floats]:
    """Means of values (Q,) over the valid queries of resampled identities, (samples,) for each."""
    if samples < 2 or not 0 < level < 1:
        raise ConfigError(f"samples must be at least 2 and level in (0, 1), not {samples} and {level}")
    valid = result.valid
    names, identity = np.unique(result.query_ids[valid], return_inverse=True)
    identity = identity.reshape(-1)
    if len(names) < 2:
        raise DataError("an interval over identities needs at least two of them with a right answer")
    queries = np.bincount(identity).astype(np.float64)
    sums = [np.bincount(identity, weights=v[valid]) for v in values]
    parts = [[draws @ s / (draws @ queries) for s in sums] for draws in _draws(len(names), samples, seed)]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _draws(identities: int, samples: int, seed: int) -> Iterator[Floats]:
    """How often each identity is drawn, (some samples, identities), in parts that bound the memory."""
    rng = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // identities)
    for start in range(0, samples, step):
        size = min(step, samples - start)
        yield rng.multinomial(identities, np.full(identities, 1 / identities), size=size).astype(np.float64)


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
