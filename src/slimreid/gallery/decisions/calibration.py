"""Thresholds with a meaning: which score a stranger exceeds once in 100, 300 or 1,000 searches.

The searches must be for identities that the model was not trained on, in a gallery of the size that will be
used. A calibration belongs to the features it was made with and to the size of the gallery: `valid_for` says
whether it still holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from slimreid.errors import DataError
from slimreid.gallery.decisions.rates import (
    LEAST_IDENTITIES,
    Estimate,
    check_rate,
    false_negative,
    false_positive,
    needed_searches,
    rate_estimate,
    threshold_estimate,
)
from slimreid.gallery.decisions.searches import Searches
from slimreid.inference.similarity import Similarity
from slimreid.json_files import check_object, parse_json

RATES = (0.01, 0.003, 0.001)
"""FPIR that thresholds are made for: one stranger in 100, 333 and 1,000 is taken for somebody."""
UNSURE_FACTOR = 10
"""Who is above the threshold for a rate so many times as high is worth a look: the answer is `unsure`."""
GROWTH = 2
"""A gallery that has grown by more than this needs a new calibration."""
ANY = ""
"""Name of the points for queries of all subsets together."""


@dataclass(frozen=True)
class Bound:
    """What a calibration is bound to."""

    fingerprint: str
    """Of the features: weights, precision and preprocessing."""
    identities: int
    rows: int


@dataclass(frozen=True)
class Validity:
    """Whether a calibration holds for a gallery as it is now."""

    state: Literal["ok", "void", "outgrown"]
    """void: other features; outgrown: the gallery has more than doubled."""
    reason: str = ""

    def __bool__(self) -> bool:
        return self.state == "ok"


@dataclass(frozen=True)
class Point:
    """One promised rate for queries of one subset of the modalities."""

    subset: str
    """As `subset_name` gives it; `ANY` = of all subsets together."""
    rate: float
    """Promised FPIR."""
    searches: int
    """Searches for strangers behind the threshold."""
    identities: int
    """Different strangers among them."""
    threshold: Estimate | None = None
    """Scores above it are accepted; None where there were too few searches."""
    fnir: Estimate | None = None
    """Misses among searches for enrolled identities; None where there were none."""
    mated: int = 0
    """Searches for enrolled identities."""
    achieved: Estimate | None = None
    """FPIR on identities that were held out; None where there were none."""
    held_out: int = 0
    """Searches for strangers that were held out."""

    @property
    def refusal(self) -> str:
        """Why there is no threshold, and what is needed; empty where there is one."""
        if self.threshold is not None:
            return ""
        who = f" with {self.subset}" if self.subset else ""
        return (
            f"FPIR {self.rate:.2%} cannot be promised from {self.searches:,} searches for "
            f"{self.identities:,} strangers{who}: it needs at least {needed_searches(self.rate):,} searches "
            f"and {LEAST_IDENTITIES} strangers; calibrate with more identities or choose a higher rate"
        )


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds for a gallery, and the scale of the scores they are for."""

    bound: Bound
    similarity: Similarity
    points: tuple[Point, ...]

    @cached_property
    def _by_key(self) -> dict[tuple[str, float], Point]:
        return {(point.subset, point.rate): point for point in self.points}

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates that can be chosen for `known`, highest first: those with a laxer one for `unsure`."""
        made = {point.rate for point in self.points}
        return tuple(sorted((r for r in made if unsure_rate(r) in made), reverse=True))

    def point(self, subset: str, rate: float) -> Point:
        """The point of a query's subset, or that of all subsets where its own has too few searches.

        Raises `DataError` for a rate that no threshold was made for.
        """
        pooled = self._by_key.get((ANY, rate))
        if pooled is None:
            known = ", ".join(f"{r:g}" for r in self.rates)
            raise DataError(
                f"no threshold was made for FPIR {rate:g}; choose one of {known}, or calibrate again"
            )
        own = self._by_key.get((subset, rate), pooled)
        return own if own.threshold is not None else pooled

    def valid_for(self, now: Bound) -> Validity:
        """Whether the thresholds hold for a gallery as it is now."""
        if now.fingerprint != self.bound.fingerprint:
            made = "the calibration was made with another model, precision or preprocessing"
            return Validity("void", f"{made}: calibrate again")
        for name in ("identities", "rows"):
            then, count = getattr(self.bound, name), getattr(now, name)
            if count > GROWTH * then:
                grown = f"the calibration was made with {then:,} {name}, now there are {count:,}"
                return Validity("outgrown", f"{grown}: calibrate again")
        return Validity("ok")

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        similarity = self.similarity.to_plain()
        values = {
            "bound": asdict(self.bound),
            "modalities": similarity["modalities"],
            "blocks": similarity["blocks"],
            "scale": similarity["impostors"],
            "points": [asdict(point) for point in self.points],
        }
        return json.dumps(values, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibration:
        """What `to_json` wrote; raises `DataError` for anything else."""
        try:
            values = check_object(
                parse_json(text), {"bound": dict, "modalities": list, "blocks": list, "points": list}
            )
            bound = check_object(values["bound"], {"fingerprint": str, "identities": int, "rows": int})
            similarity = Similarity.from_plain(values | {"impostors": values.get("scale")})
            return cls(Bound(**bound), similarity, tuple(_read_point(point) for point in values["points"]))
        except (ValueError, TypeError, DataError) as error:
            raise DataError(f"the calibration cannot be read ({error}); calibrate again") from None


def unsure_rate(rate: float) -> float:
    """FPIR of the laxer threshold that goes with a strict one."""
    return round(rate * UNSURE_FACTOR, 12)


def calibrate(
    searches: Searches,
    bound: Bound,
    similarity: Similarity,
    *,
    held_out: Searches | None = None,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> Calibration:
    """Thresholds for each rate and its laxer one, for each subset of the queries and for all together.

    Args:
        searches: For identities that were not in training; scores on the scale of `similarity`.
        bound: Features and size of the gallery that was searched.
        similarity: How the scores were computed.
        held_out: Further searches, for other identities, by which the rates are checked.
        rates: FPIR to make thresholds for, each below 0.1.
        seed: Of the resampling.

    Raises:
        ConfigError: For a rate out of range.
    """
    wanted = sorted({check_rate(r) for rate in rates for r in (rate, unsure_rate(rate))}, reverse=True)
    points = [_point(ANY, rate, searches, held_out, seed) for rate in wanted]
    for name in sorted(set(searches.subset.tolist())):
        part = searches[searches.subset == name]
        check = None if held_out is None else held_out[held_out.subset == name]
        points += [_point(name, rate, part, check, seed) for rate in wanted]
    return Calibration(bound, similarity, tuple(points))


def _point(name: str, rate: float, searches: Searches, held_out: Searches | None, seed: int) -> Point:
    strangers = searches[searches.comparable]
    count, identities = len(strangers), len(np.unique(strangers.identity))
    threshold = None
    if count >= needed_searches(rate) and identities >= LEAST_IDENTITIES:
        threshold = threshold_estimate(strangers.other, strangers.identity, rate, seed)
    if threshold is None:
        return Point(name, rate, count, identities)
    mated = searches[searches.mated]
    fnir = rate_estimate(false_negative(mated, threshold.value), mated.identity, seed) if len(mated) else None
    achieved, checked = None, 0
    if held_out is not None and held_out.comparable.any():
        others = held_out[held_out.comparable]
        checked = len(others)
        achieved = rate_estimate(false_positive(others, threshold.value), others.identity, seed)
    return Point(name, rate, count, identities, threshold, fnir, len(mated), achieved, checked)


def _read_point(values: Any) -> Point:
    kinds = {"subset": str, "rate": float, "searches": int, "identities": int, "mated": int, "held_out": int}
    fields = dict(check_object(values, kinds))
    for name in ("threshold", "fnir", "achieved"):
        if fields.get(name) is not None:
            kinds = {"value": float, "low": float, "high": float}
            fields[name] = Estimate(**check_object(fields[name], kinds))
    return Point(**fields)
