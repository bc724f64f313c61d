"""What an evaluation found, for tables and figures, and how far a mAP could be off.

Queries of one identity stand or fall together, so intervals are over resampled identities, not queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from slimreid.arrays import Bools, Doubles, Floats, Ints
from slimreid.bootstrap import percentile_interval, resample
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.roc import RocCurve

RANKS = (1, 5, 10, 20)
"""Ranks of the CMC that tables show."""


def expected_average_precision(matches: Ints, candidates: Ints) -> Doubles:
    """Mean average precision over all orders of N candidates with R ≥ 1 right ones, elementwise.

    Rank k is right with probability R/N, and then each of the k − 1 before it with (R−1)/(N−1). Summing
    the expected precision over ranks gives (H_N + (N − H_N)·(R−1)/(N−1)) / N, with H_N = 1 + 1/2 + ... + 1/N.
    """
    N = np.asarray(candidates, dtype=np.float64)
    R = np.asarray(matches, dtype=np.float64)
    harmonic = digamma(N + 1) + np.euler_gamma
    share = (R - 1) / np.maximum(N - 1, 1)
    value: Doubles = (harmonic + (N - harmonic) * share) / N
    return value


@dataclass(frozen=True, eq=False)
class QueryPrecisions:
    """Average precision of Q queries: what intervals and paired differences need of a retrieval."""

    protocol: str
    query_ids: NDArray[np.generic]
    average_precision: Doubles
    """(Q,), NaN for skipped queries."""

    def __post_init__(self) -> None:
        if self.average_precision.shape != self.query_ids.shape:
            raise DataError(
                f"{len(self.average_precision)} average precisions for {len(self.query_ids)} queries"
            )

    @property
    def valid(self) -> Bools:
        """(Q,): the queries that count, because they have a correct match left in the gallery."""
        return ~np.isnan(self.average_precision)

    @property
    def identities(self) -> int:
        """How many identities valid queries show: an interval needs two of them."""
        return len(np.unique(self.query_ids[self.valid]))

    @property
    def map(self) -> float:
        """Mean average precision over the valid queries."""
        return float(self.average_precision[self.valid].mean())


@dataclass(frozen=True, eq=False)
class RetrievalResult(QueryPrecisions):
    """Figures of Q queries against one gallery; all shares are 0 to 1, all ranks count from 1.

    | field               | shape           | what                                                        |
    |---------------------|-----------------|-------------------------------------------------------------|
    | `protocol`          |                 | `camera`, `scene` or `none`                                 |
    | `query_ids`         | (Q,)            | identities as they were given                               |
    | `average_precision` | (Q,) float64    | NaN for skipped queries                                     |
    | `inverse_penalty`   | (Q,) float64    | correct matches / rank of the last one; NaN for skipped     |
    | `first_hit`         | (Q,) int64      | rank of the first correct match; 0 for skipped              |
    | `matches`           | (Q,) int64      | correct matches in the gallery; 0 for skipped               |
    | `candidates`        | (Q,) int64      | gallery items that were ranked (all but the ignored)        |
    | `cmc`               | (max rank,)     | share of queries with a hit up to rank 1, 2, ...            |
    | `top_index`         | (Q, k) int64    | gallery index of the first k; −1 where there are fewer      |
    | `top_score`         | (Q, k) float32  | their scores; NaN where there are fewer or none is known    |
    | `top_is_match`      | (Q, k) bool     | whether they are right                                      |
    | `roc`               |                 | rates of true and false matches, if asked for and there     |
    """

    inverse_penalty: Doubles
    first_hit: Ints
    matches: Ints
    candidates: Ints
    cmc: Doubles
    top_index: Ints
    top_score: Floats
    top_is_match: Bools
    roc: RocCurve | None = None

    def __post_init__(self) -> None:
        Q = len(self.query_ids)
        for name in ("average_precision", "inverse_penalty", "first_hit", "matches", "candidates"):
            if getattr(self, name).shape != (Q,):
                raise DataError(f"{name} must be ({Q},), not {getattr(self, name).shape}")
        if not (self.top_index.shape == self.top_score.shape == self.top_is_match.shape):
            raise DataError("top_index, top_score and top_is_match must have the same shape")
        if self.top_index.shape[:1] != (Q,) or self.top_index.ndim != 2:
            raise DataError(f"top_index must be ({Q}, k), not {self.top_index.shape}")
        valid = self.matches > 0
        if not valid.any():
            raise DataError("a result needs at least one query with a correct match")
        for name in ("average_precision", "inverse_penalty"):
            shares = getattr(self, name)
            if not np.array_equal(np.isnan(shares), ~valid):
                raise DataError(f"{name} must be NaN for skipped queries and only for those")
            if shares[valid].min() <= 0 or shares[valid].max() > 1 + 1e-9:
                raise DataError(f"{name} must lie in (0, 1]")
        if (self.first_hit[valid] < 1).any() or (self.first_hit > self.candidates).any():
            raise DataError("first_hit must be a rank from 1 to the number of candidates")
        if self.cmc.ndim != 1 or (np.diff(self.cmc) < 0).any() or (self.cmc < 0).any():
            raise DataError("cmc must be one row of shares that never fall")

    @property
    def valid_queries(self) -> int:
        """How many queries count."""
        return int(self.valid.sum())

    @property
    def skipped_queries(self) -> int:
        """How many queries were left out because they have no correct match."""
        return int((~self.valid).sum())

    @property
    def minp(self) -> float:
        """Mean inverse negative penalty over the valid queries."""
        return float(self.inverse_penalty[self.valid].mean())

    @property
    def chance_map(self) -> float:
        """The mAP to expect of a random order, exactly."""
        valid = self.valid
        return float(expected_average_precision(self.matches[valid], self.candidates[valid]).mean())

    def rank(self, k: int) -> float:
        """Share of queries with a correct match among the first k; raises `DataError` beyond `max_rank`."""
        if not 1 <= k <= len(self.cmc):
            raise DataError(f"rank {k} is not kept; evaluate with max_rank of at least {k}")
        return float(self.cmc[k - 1])

    def to_dict(self, ranks: Sequence[int] = RANKS) -> dict[str, Any]:
        """Everything a table needs, ready for JSON."""
        figures: dict[str, Any] = {
            "protocol": self.protocol,
            "map": self.map,
            "minp": self.minp,
            "cmc": {str(k): self.rank(k) for k in ranks if k <= len(self.cmc)},
            "valid_queries": self.valid_queries,
            "skipped_queries": self.skipped_queries,
            "chance_map": self.chance_map,
        }
        if self.roc is not None:
            figures["roc"] = [point.to_dict() for point in self.roc.operating_points()]
        return figures


def nullable(values: NDArray[np.floating]) -> list[Any]:
    """A list, nested as the array is, with None for NaN, which JSON does not know."""
    objects = values.astype(np.float64).astype(object)
    objects[np.isnan(values)] = None
    nested: list[Any] = objects.tolist()
    return nested


@dataclass(frozen=True)
class Interval:
    """A value and the interval that holds the given share of its resamples."""

    value: float
    low: float
    high: float
    level: float
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: bounds that do not exist become None."""
        return {name: None if value != value else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Interval:
        """The interval that `to_dict` described."""
        known: dict[str, Any] = {n: float("nan") if value is None else value for n, value in values.items()}
        return cls(**known)


@dataclass(frozen=True)
class PairedDifference(Interval):
    """mAP of the second result minus that of the first, over the same resampled identities."""

    share_positive: float
    """Share of resamples in which the second is better (equal ones count half)."""

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def bootstrap_map(
    result: QueryPrecisions, *, samples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Percentile interval of the mAP over resampled identities; with NaN bounds where there is only one.

    Raises `ConfigError` for an option out of range.
    """
    if result.identities < 2:
        return Interval(result.map, np.nan, np.nan, level, 0)
    means = _resampled_means(result, [result.average_precision], samples, level, seed)[0]
    low, high = percentile_interval(means, level)
    return Interval(result.map, low, high, level, samples)


def paired_bootstrap(
    first: QueryPrecisions,
    second: QueryPrecisions,
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
    before, after = _resampled_means(first, precisions, samples, level, seed)
    difference = after - before
    low, high = percentile_interval(difference, level)
    positive = float((difference > 0).mean() + (difference == 0).mean() / 2)
    return PairedDifference(second.map - first.map, low, high, level, samples, positive)


def _resampled_means(
    result: QueryPrecisions, values: list[Doubles], samples: int, level: float, seed: int
) -> list[Doubles]:
    """Means of values (Q,) over the valid queries of resampled identities, (samples,) for each."""
    if samples < 2 or not 0 < level < 1:
        raise ConfigError(f"samples must be at least 2 and level in (0, 1), not {samples} and {level}")
    valid = result.valid
    names, identity = np.unique(result.query_ids[valid], return_inverse=True)
    identity = identity.reshape(-1)
    if len(names) < 2:
        raise DataError("an interval over identities needs at least two of them with a correct match")
    queries = np.bincount(identity).astype(np.float64)
    sums = [np.bincount(identity, weights=v[valid]) for v in values]
    parts = [[draws @ s / (draws @ queries) for s in sums] for draws in resample(len(names), samples, seed)]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]
