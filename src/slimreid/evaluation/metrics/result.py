"""What an evaluation found, for tables, figures and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from slimreid.data.manifest import Protocol
from slimreid.errors import DataError
from slimreid.evaluation.metrics.roc import RocCurve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def expected_average_precision(
    matches: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean average precision over all orders of N candidates with R ≥ 1 right ones, elementwise.

    Rank k is right with probability R/N, and then each of the k − 1 before it with (R−1)/(N−1). Summing
    the expected precision over ranks gives (H_N + (N − H_N)·(R−1)/(N−1)) / N, with H_N = 1 + 1/2 + ... + 1/N.
    """
    N = np.asarray(candidates, dtype=np.float64)
    R = np.asarray(matches, dtype=np.float64)
    harmonic = digamma(N + 1) + np.euler_gamma
    share = (R - 1) / np.maximum(N - 1, 1)
    value: NDArray[np.float64] = (harmonic + (N - harmonic) * share) / N
    return value


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """Figures of Q queries against one gallery; all shares are 0 to 1, all ranks count from 1.

    | field               | shape           | what                                                        |
    |---------------------|-----------------|-------------------------------------------------------------|
    | `protocol`          |                 | `camera`, `scene` or `none`                                 |
    | `query_ids`         | (Q,)            | identities as they were given                               |
    | `average_precision` | (Q,) float64    | NaN for skipped queries                                     |
    | `inverse_penalty`   | (Q,) float64    | right answers / rank of the last one; NaN for skipped       |
    | `first_hit`         | (Q,) int64      | rank of the first right answer; 0 for skipped               |
    | `matches`           | (Q,) int64      | right answers in the gallery; 0 for skipped                 |
    | `candidates`        | (Q,) int64      | gallery items that were ranked (all but the ignored)        |
    | `cmc`               | (max rank,)     | share of queries with a hit up to rank 1, 2, ...            |
    | `top_index`         | (Q, k) int64    | gallery index of the first k; −1 where there are fewer      |
    | `top_score`         | (Q, k) float32  | their scores; NaN where there are fewer or none is known    |
    | `top_is_match`      | (Q, k) bool     | whether they are right                                      |
    | `roc`               |                 | rates of true and false matches, if asked for and there     |
    """

    protocol: Protocol
    query_ids: NDArray[np.generic]
    average_precision: Floats
    inverse_penalty: Floats
    first_hit: Ints
    matches: Ints
    candidates: Ints
    cmc: Floats
    top_index: Ints
    top_score: NDArray[np.float32]
    top_is_match: NDArray[np.bool_]
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
        valid = self.valid
        if not valid.any():
            raise DataError("a result needs at least one query with a right answer")
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
    def valid(self) -> NDArray[np.bool_]:
        """(Q,): the queries that have a right answer left in the gallery."""
        return self.matches > 0

    @property
    def valid_queries(self) -> int:
        """How many queries count."""
        return int(self.valid.sum())

    @property
    def skipped_queries(self) -> int:
        """How many queries were left out, for want of any right answer."""
        return int((~self.valid).sum())

    @property
    def map(self) -> float:
        """Mean average precision over the valid queries."""
        return float(self.average_precision[self.valid].mean())

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
        """Share of queries with a right answer among the first k; raises `DataError` beyond `max_rank`."""
        if not 1 <= k <= len(self.cmc):
            raise DataError(f"rank {k} is not kept; evaluate with max_rank of at least {k}")
        return float(self.cmc[k - 1])

    def to_dict(self, ranks: Sequence[int] = (1, 5, 10, 20), per_query: bool = False) -> dict[str, Any]:
        """Everything a table needs, ready for JSON; `per_query` adds the figures of each query."""
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
        if per_query:
            valid = self.valid.tolist()
            precision = self.average_precision.tolist()
            figures["queries"] = {
                "identity": self.query_ids.tolist(),
                "average_precision": [ap if ok else None for ap, ok in zip(precision, valid, strict=True)],
                "first_hit": [hit or None for hit in self.first_hit.tolist()],
                "matches": self.matches.tolist(),
            }
        return figures
