"""Verification: how well one threshold on the score tells true pairs from false ones.

Every score of a true pair is kept, and of the false pairs the highest ones, so that rates and thresholds up
to a false match rate of 1 % are exact whatever the range of the scores. Lower scores of false pairs, if they
are too many to be kept, are counted in bins by quantiles: thresholds then lie on an edge of a bin, and the
rates at it are exact too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np
import torch
from torch import Tensor

from slimreid.arrays import Doubles, Floats, Ints
from slimreid.errors import DataError
from slimreid.evaluation.metrics.ranking import Positives
from slimreid.evaluation.metrics.scores import NO_SIMILARITY

FALSE_MATCH_RATES = (1e-2, 1e-3, 1e-4)
BARS = 128
"""Bins of a curve's histogram."""
KEEP_ALL = 2**21
"""As many scores of false pairs are all kept (8 MB)."""
KEEP_MOST = 2**23
"""No more of them are ever kept (32 MB)."""
_EDGES = 4096
_PER_DECADE = 64
"""Points of a curve per decade of false match rate."""


@dataclass(frozen=True)
class OperatingPoint:
    """One threshold: pairs with at least this score are called the same."""

    false_match_rate: float
    """The rate asked for."""
    threshold: float | None
    """Lowest score that stays within that rate; None if only calling no pair the same does."""
    true_match_rate: float
    measured_false_match_rate: float
    supported: bool
    """Whether the rate asked for is at least one false pair of those there are."""

    def to_dict(self) -> dict[str, float | bool | None]:
        """Ready for JSON."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class RocCurve:
    """True and false match rates over thresholds, and how the scores of both kinds of pairs lie."""

    thresholds: Doubles
    """(n,) ascending, with as few decimals as tell the pairs apart; infinite where no pair reaches it."""
    false_rate: Doubles
    """(n,) exact share of false pairs with at least that score."""
    true_rate: Doubles
    """(n,) exact share of true pairs with at least that score."""
    true_pairs: int
    false_pairs: int
    edges: Doubles
    """(129,) ascending: bins over the range of the scores, for a picture."""
    true: Ints
    """(128,) true pairs per bin."""
    false: Ints
    """(128,) false pairs per bin."""

    def __post_init__(self) -> None:
        n = len(self.thresholds)
        if not n or self.false_rate.shape != (n,) or self.true_rate.shape != (n,):
            raise DataError(f"a curve needs {n} rates of each kind, one per threshold, and at least one")
        if (np.diff(self.thresholds) <= 0).any() or (np.diff(self.false_rate) > 0).any():
            raise DataError("thresholds must ascend, and false match rates never rise with them")
        if self.edges.shape != (BARS + 1,) or self.true.shape != (BARS,) or self.false.shape != (BARS,):
            raise DataError(f"a histogram needs {BARS} bins, not {self.true.shape} and {self.false.shape}")

    def operating_points(self, rates: Sequence[float] = FALSE_MATCH_RATES) -> list[OperatingPoint]:
        """Lowest threshold of the curve, and its rates, at each false match rate."""
        points = []
        for rate in rates:
            # False match rates never rise with the threshold, so the first that fits is the lowest.
            first = int(np.argmax(self.false_rate <= rate))
            threshold = float(self.thresholds[first])
            points.append(
                OperatingPoint(
                    false_match_rate=rate,
                    threshold=threshold if math.isfinite(threshold) else None,
                    true_match_rate=float(self.true_rate[first]),
                    measured_false_match_rate=float(self.false_rate[first]),
                    supported=bool(rate * self.false_pairs >= 1),
                )
            )
        return points


def true_scores(scores: Tensor, positives: Positives) -> Floats:
    """Scores of the true pairs among (b, G), ignored items at −inf; only pairs that have a similarity."""
    row, column = (torch.from_numpy(part).to(scores.device) for part in (positives.query, positives.item))
    true = scores[row, column][torch.from_numpy(positives.is_match).to(scores.device)]
    found: Floats = true[true > NO_SIMILARITY].float().cpu().numpy()
    return found


def false_scores(scores: Tensor, positives: Positives) -> Iterator[Floats]:
    """The same of the false pairs, some at a time."""
    row, column = (torch.from_numpy(part).to(scores.device) for part in (positives.query, positives.item))
    step = max(1, 2**21 // scores.shape[1])
    for first in range(0, len(scores), step):
        part = scores[first : first + step]
        false = part > NO_SIMILARITY
        own = (row >= first) & (row < first + len(part))
        false[row[own] - first, column[own]] = False
        yield part[false].float().cpu().numpy()


class PairScores:
    """Scores of true and false pairs as they go by; a `Measure`. Pairs without a similarity do not count."""

    def __init__(self, false_pairs: int) -> None:
        """`false_pairs`: how many there are at most."""
        asked = math.ceil(max(FALSE_MATCH_RATES) * false_pairs) + 1
        self._kept = min(false_pairs, max(KEEP_ALL, min(asked, KEEP_MOST)))
        self._true: list[Floats] = []
        self._top: list[Floats] = []
        self._waiting = 0
        self._cut = -np.inf
        self._edges: Floats | None = None
        self._below = np.zeros(0, dtype=np.int64)
        self._lowest = np.inf

    def add(self, rows: slice, scores: Tensor, positives: Positives) -> None:
        """Take the scores (b, G) of the queries `rows`, ignored items at −inf."""
        self._true.append(true_scores(scores, positives))
        for false in false_scores(scores, positives):
            self._add_false(false)

    def _add_false(self, scores: Floats) -> None:
        if not len(scores):
            return
        self._lowest = min(self._lowest, float(scores.min()))
        above = scores > self._cut if np.isfinite(self._cut) else np.ones(len(scores), dtype=np.bool_)
        self._count(scores[~above])
        self._top.append(scores[above])
        self._waiting += int(above.sum())
        if self._waiting > 2 * self._kept:
            self._shrink()

    def _shrink(self) -> None:
        """Keep the highest scores, all of those above one value, and count the others."""
        scores = np.concatenate(self._top)
        if len(scores) <= self._kept:
            self._top = [scores]
            return
        last = len(scores) - self._kept
        cut = np.partition(scores, last)[last]
        if (scores >= cut).sum() <= 2 * self._kept:  # equal ones stay together
            cut = np.nextafter(cut, np.float32(-np.inf))
        above = scores > cut
        if self._edges is None:
            edges = np.quantile(scores[~above], np.linspace(0, 1, _EDGES), method="lower")
            self._edges = np.unique(edges.astype(np.float32))
            self._below = np.zeros(len(self._edges) + 1, dtype=np.int64)
        self._count(scores[~above])
        self._top, self._cut = [scores[above]], max(self._cut, float(cut))
        self._waiting = int(above.sum())

    def _count(self, scores: Floats) -> None:
        if len(scores):
            assert self._edges is not None
            at = np.searchsorted(self._edges, np.sort(scores), side="right")
            self._below += np.bincount(at, minlength=len(self._below))

    def curve(self) -> RocCurve | None:
        """The curve of everything that went by; None where there are no true or no false pairs."""
        true = np.sort(np.concatenate(self._true)) if self._true else np.zeros(0, np.float32)
        top = np.sort(np.concatenate(self._top)) if self._top else np.zeros(0, np.float32)
        total = len(top) + int(self._below.sum())
        if not len(true) or not total:
            return None
        below, at_least = self._steps(top)
        chosen = _chosen(at_least / total)
        below, at_least = below[chosen], at_least[chosen]
        true_rate = (len(true) - np.searchsorted(true, below, side="right")) / len(true)
        thresholds = self._thresholds(below, true, top)
        return RocCurve(thresholds, at_least / total, true_rate, len(true), total, *self._bars(true, top))

    def _steps(self, top: Floats) -> tuple[Floats, Ints]:
        """Scores, ascending, and how many false pairs lie above each, exactly; the first is −infinity."""
        total = len(top) + int(self._below.sum())
        values, first = np.unique(top, return_index=True)
        scores, above = [values], [np.append(len(top) - first[1:], 0)[: len(values)]]
        if self._edges is not None:
            reach = np.cumsum(self._below[::-1])[::-1]  # scores of each bin and those after it
            scores.insert(0, np.nextafter(self._edges, np.float32(-np.inf)))
            above.insert(0, len(top) + reach[1:])
        start = np.array([-np.inf], dtype=np.float32)
        joined, at = np.unique(np.concatenate([start, *scores]), return_index=True)
        return joined, np.concatenate([np.array([total]), *above]).astype(np.int64)[at]

    def _thresholds(self, below: Floats, true: Floats, top: Floats) -> Doubles:
        """For each score (n,) a short number above it, up to which no pair lies; infinite above all."""
        ends = [np.append(scores, np.float32(np.inf)) for scores in (true, top)]
        upper = np.minimum(*(end[np.searchsorted(end, below, side="right")] for end in ends))
        if self._edges is not None:  # what lies between the edges is not known, so these are met exactly
            last = np.nextafter(self._edges[-1], np.float32(-np.inf))
            upper = np.where(below <= last, np.nextafter(below, np.float32(np.inf)), upper)
        upper[0] = min(float(true[0]), self._lowest)
        return np.array([short_between(float(v), float(w)) for v, w in zip(below, upper, strict=True)])

    def _bars(self, true: Floats, top: Floats) -> tuple[Doubles, Ints, Ints]:
        """Bins over the range of all scores; what was only counted lies at the lower edge of its quantile."""
        low = min(float(true[0]), self._lowest)
        high = max(float(true[-1]), float(top[-1]) if len(top) else self._lowest)
        if high <= low:
            high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
        edges = np.linspace(low, high, BARS + 1)
        false = np.histogram(top, edges)[0].astype(np.int64)
        if self._edges is not None:
            places = np.append(np.float32(self._lowest), self._edges)
            false += np.histogram(places, edges, weights=self._below)[0].astype(np.int64)
        return edges, np.histogram(true, edges)[0].astype(np.int64), false


def _chosen(rates: Doubles) -> Ints:
    """Which of many false match rates (falling) a curve keeps: the first at or below each of a fine grid."""
    least = max(float(rates[rates > 0].min()), 1e-12)
    decades = math.ceil(-math.log10(least)) + 1
    grid = np.append(np.logspace(-decades, 0, decades * _PER_DECADE + 1), FALSE_MATCH_RATES)
    at = np.searchsorted(-rates, -grid, side="left")
    return np.unique(np.concatenate([at.clip(max=len(rates) - 1), [0, len(rates) - 1]]))


def short_between(low: float, high: float) -> float:
    """The number with the fewest decimals in (low, high]; `high` itself where that is infinite."""
    if not math.isfinite(high):
        return high
    exact = Decimal(high)
    for digits in range(1, 12):
        short = float(exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_FLOOR))
        if low < short <= high:
            return short
    return high
