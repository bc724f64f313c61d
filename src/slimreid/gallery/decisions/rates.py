"""Error rates of open-set identification, thresholds for them, and how sure they are.

A search accepts whoever scores above a threshold. FPIR is the share of searches for strangers that accept
anybody, FNIR the share of searches for enrolled identities that do not end with their own name alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from slimreid.arrays import Bools, Doubles
from slimreid.bootstrap import percentile_interval, resample
from slimreid.errors import ConfigError
from slimreid.gallery.decisions.searches import Names, Searches

LEVEL = 0.95
"""Share of the resamples that an interval holds."""
RESAMPLES = 1000
LEAST_IDENTITIES = 20
"""Fewer identities say little about others, however many searches each of them has."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Ready for JSON."""
        return dict(vars(self))


def check_rate(rate: float) -> float:
    """`rate`, if it is a share of searches; raises `ConfigError` otherwise."""
    if not 0 < rate < 1:
        raise ConfigError(f"a rate of false positives must lie between 0 and 1 (0.01 = 1 %), not {rate}")
    return rate


def needed_searches(rate: float) -> int:
    """Searches for strangers without which a rate cannot be promised: 299 for 1 %, 2,995 for 0.1 %.

    With fewer, none of them being accepted would still be no sign (at 95 %) that the rate is this low: the
    exact form of the rule of three, 3 / rate.
    """
    return math.ceil(math.log(1 - LEVEL) / math.log1p(-check_rate(rate)))


def threshold_for(scores: Doubles, rate: float, independent: float | None = None) -> float | None:
    """Threshold that strangers exceed with at most this rate, from best scores (n,) of such searches.

    Of n + 1 exchangeable searches the new one is as likely as any other to be among the highest, so
    rate · (n + 1) − 1 of the n, rounded down, may exceed it. Where only `independent` of them tell something
    new, the same share of n is taken. None where they are too few for that.
    """
    n = len(scores)
    allowed = math.floor(
        n * _allowed_share(check_rate(rate), n if independent is None else independent) + 1e-9
    )
    return None if allowed < 0 else float(np.sort(scores)[::-1][allowed])


def _allowed_share(rate: float, independent: float) -> float:
    """Share of the searches behind a threshold that may exceed it; below 0 = there are too few of them."""
    return (rate * (independent + 1) - 1) / independent if independent else -1.0


def independent_searches(wrong: Bools, identity: Names) -> float:
    """How many of n searches tell something new, from which of them are `wrong` (n,): n / design effect.

    Strangers that look like somebody do so in all their images. The design effect is the variance of the
    share over identities (n,), against that of n searches of different ones; the result lies between the
    number of identities and n.
    """
    n, share = len(wrong), float(wrong.mean()) if len(wrong) else 0.0
    searched, errors = _per_identity(wrong, identity)
    names = len(searched)
    if not 0 < share < 1 or names < 2:
        return float(n)
    spread = names / (names - 1) * float(((errors - share * searched) ** 2).sum()) / n
    return float(np.clip(n * share * (1 - share) / spread, names, n)) if spread > 0 else float(n)


def _per_identity(wrong: Bools, identity: Names) -> tuple[Doubles, Doubles]:
    """Searches for each identity, and how many of them are `wrong`."""
    member = np.unique(identity, return_inverse=True)[1].reshape(-1)
    searched, errors = np.bincount(member), np.bincount(member, weights=wrong.astype(np.float64))
    return searched.astype(np.float64), errors.astype(np.float64)


def false_positive(searches: Searches, threshold: float) -> Bools:
    """(n,): whether anybody but the own identity is accepted; False where nobody can be compared."""
    return np.asarray(searches.other > threshold)


def false_negative(searches: Searches, threshold: float) -> Bools:
    """(n,): whether the own identity is not accepted, or not alone; True where it cannot be found."""
    return ~(searches.own > threshold) | (searches.other > threshold)


def rate_estimate(wrong: Bools, identity: Names, seed: int = 0) -> Estimate:
    """Share of `wrong` (n,) with an interval over resampled identities (n,); NaN for n = 0.

    Where few are wrong, resampling alone would look too sure (0 wrong: an interval of width 0), so it is
    widened to the exact binomial interval of n searches.
    """
    n, count = len(wrong), int(wrong.sum())
    if not n:
        return Estimate(math.nan, math.nan, math.nan)
    low, high = _binomial_interval(count, n)
    searched, errors = _per_identity(wrong, identity)
    shares = [draws @ errors / (draws @ searched) for draws in resample(len(searched), RESAMPLES, seed)]
    resampled_low, resampled_high = percentile_interval(np.concatenate(shares), LEVEL)
    return Estimate(count / n, min(low, resampled_low), max(high, resampled_high))


def threshold_estimate(scores: Doubles, identity: Names, rate: float, seed: int = 0) -> Estimate | None:
    """Threshold for a rate with an interval over resampled identities (n,); None where they are too few.

    It is that of `threshold_for`, with as many independent searches as there are at its first answer.
    """
    first = threshold_for(scores, rate)
    if first is None:
        return None
    independent = independent_searches(scores > first, identity)
    threshold = threshold_for(scores, rate, independent)
    if threshold is None:
        return None
    share = _allowed_share(rate, independent)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    names, member = np.unique(identity, return_inverse=True)
    member = member.reshape(-1)[order]
    found = []
    for draws in resample(len(names), RESAMPLES, seed, len(scores)):
        above = draws[:, member].cumsum(axis=1)  # (some resamples, n): searches that score this or more
        allowed = np.floor(share * above[:, -1:] + 1e-9)
        found.append(ranked[(above > allowed).argmax(axis=1)])
    low, high = percentile_interval(np.concatenate(found), LEVEL)
    return Estimate(threshold, min(low, threshold), max(high, threshold))


def rate_after_growth(rate: float, measured: int, now: int) -> float:
    """FPIR expected with `now` identities where it was `rate` with `measured`: each can be taken for.

    A gallery that shrank is credited with nothing.
    """
    return rate if now <= measured else 1 - (1 - rate) ** (now / measured)


def _binomial_interval(count: int, n: int) -> tuple[float, float]:
    """Exact (Clopper–Pearson) interval of a share, count of n."""
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high
