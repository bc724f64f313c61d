"""Verification: how well one threshold on the score tells true pairs from false ones.

Scores are counted in bins of 2⁻¹⁵ (3.1e-5 of cosine) as they appear, so that billions of pairs take no more
memory than two rows of counts. Thresholds lie on the edges of bins; rates at an edge are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.errors import DataError
from slimreid.evaluation.protocols import Partners

HALF = 2**15
"""Bins per unit of score. A power of two: multiplying by it is exact, so no score falls into a wrong bin."""
BINS = 2 * HALF
FALSE_MATCH_RATES = (1e-2, 1e-3, 1e-4)
_AT_ONCE = 2**21
"""Scores that are binned at once."""


@dataclass(frozen=True)
class OperatingPoint:
    """One threshold: pairs with at least this score are called the same."""

    false_match_rate: float
    """The rate asked for."""
    threshold: float | None
    """Lowest threshold (cosine) that stays within that rate; None if only calling no pair the same does."""
    true_match_rate: float
    measured_false_match_rate: float
    supported: bool
    """Whether the rate asked for is at least one false pair of those there are."""

    def to_dict(self) -> dict[str, float | bool | None]:
        """Ready for JSON."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Counts of true and false pairs per bin of score, from −1 upwards: (65536,) int64 each."""

    true: NDArray[np.int64]
    false: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("true", "false"):
            counts = getattr(self, name)
            if counts.shape != (BINS,) or counts.dtype != np.int64 or counts.min() < 0:
                raise DataError(f"{name} must be ({BINS},) counts, not {counts.dtype} {counts.shape}")

    @staticmethod
    def edges(bins: int = BINS) -> NDArray[np.float64]:
        """The lower edges of the bins and the upper one of the last, (bins + 1,)."""
        return np.linspace(-1.0, 1.0, bins + 1)

    def roc(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Thresholds, false and true match rates, (65537,) each, thresholds ascending.

        The last threshold stands above every score: no pair is called the same. Raises `DataError` when
        there are no true or no false pairs.
        """
        rates = []
        for name, counts in (("false", self.false), ("true", self.true)):
            at_least = np.concatenate([np.cumsum(counts[::-1])[::-1], [0]])
            if at_least[0] == 0:
                raise DataError(f"there are no {name} pairs, so there is no ROC curve")
            rates.append(at_least / at_least[0])
        return self.edges(), rates[0], rates[1]

    def operating_points(self, rates: Sequence[float] = FALSE_MATCH_RATES) -> list[OperatingPoint]:
        """True match rate and threshold at each false match rate; raises `DataError` as `roc`."""
        thresholds, false_rate, true_rate = self.roc()
        points = []
        for rate in rates:
            # False match rates never rise with the threshold, so the first that fits is the lowest.
            first = int(np.argmax(false_rate <= rate))
            points.append(
                OperatingPoint(
                    false_match_rate=rate,
                    threshold=float(thresholds[first]) if first < BINS else None,
                    true_match_rate=float(true_rate[first]),
                    measured_false_match_rate=float(false_rate[first]),
                    supported=bool(rate * self.false.sum() >= 1),
                )
            )
        return points

    def coarse(self, bins: int = 128) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Edges (bins + 1,), true and false counts (bins,) for a figure; `bins` is a power of two."""
        if bins < 1 or BINS % bins:
            raise DataError(f"{bins} bins do not divide {BINS}; use a power of two")
        true, false = (counts.reshape(bins, -1).sum(axis=1) for counts in (self.true, self.false))
        return self.edges(bins), true, false


class HistogramCounter:
    """Counts scores chunk by chunk; `result` is the histogram of all."""

    def __init__(self) -> None:
        self._true = np.zeros(BINS, dtype=np.int64)
        self._all = np.zeros(BINS, dtype=np.int64)

    def add(self, scores: Tensor, partners: Partners) -> None:
        """Count the scores (b, G) of b queries in [−1, 1], before ignored items are marked in them."""
        for part in torch.split(scores.flatten(), _AT_ONCE):
            self._all += _count(part)
        rows = torch.from_numpy(partners.query).to(scores.device)
        columns = torch.from_numpy(partners.item).to(scores.device)
        right = torch.from_numpy(partners.right).to(scores.device)
        partner_scores = scores[rows, columns]
        self._true += _count(partner_scores[right])
        self._all -= _count(partner_scores[~right])

    def result(self) -> ScoreHistogram:
        """The histogram of everything counted so far."""
        return ScoreHistogram(self._true.copy(), self._all - self._true)


def _count(scores: Tensor) -> NDArray[np.int64]:
    # Rounding may put a cosine just outside [−1, 1]; it belongs to the outermost bin.
    bins = (scores * HALF).floor_().clamp_(-HALF, HALF - 1).to(torch.int64).add_(HALF)
    counts: NDArray[np.int64] = torch.bincount(bins, minlength=BINS).cpu().numpy()
    return counts
