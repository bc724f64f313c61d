"""Who is this? A name, not sure, or nobody we know, with the error rate behind the answer.

| best score                                             | answer      |
|--------------------------------------------------------|-------------|
| above the strict threshold, one identity alone         | `known`     |
| above the strict threshold, several identities         | `unsure`    |
| above the lax threshold                                | `unsure`    |
| at most the lax threshold                              | `unknown`   |
| no valid calibration, or no modality in common         | `undecided` |

The strict threshold is the one for the FPIR that the user chose, the lax one that for ten times that rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slimreid.gallery.decisions.calibration import ANY, RATES, Bound, Calibration, unsure_rate
from slimreid.gallery.decisions.rates import rate_after_growth

State = Literal["known", "unsure", "unknown", "undecided"]


@dataclass(frozen=True)
class Candidate:
    """An identity and its best score."""

    name: str
    score: float
    rows: int = 1
    """Rows of it that could be compared."""


@dataclass(frozen=True)
class Decision:
    """The answer to one search."""

    state: State
    reason: str
    """Why, in a sentence; for `undecided` also the cure."""
    name: str | None = None
    """Who it is, for `known`."""
    candidates: tuple[Candidate, ...] = ()
    """Best first: for `known` and `unsure` those above the lax threshold, for `undecided` all given ones."""
    rate: float | None = None
    """FPIR expected at the gallery's present size; None for `undecided`."""


def identify(
    candidates: Sequence[Candidate],
    calibration: Calibration | None,
    now: Bound,
    *,
    subset: str = ANY,
    rate: float = RATES[0],
) -> Decision:
    """Decide by the best scores of identities in a gallery.

    Args:
        candidates: The best identities, at least those above the lax threshold; order does not matter. The
            scores must be on the scale of `calibration.similarity`.
        calibration: None = there is none.
        now: Features and size of the gallery as it is.
        subset: Name of the subset of the modalities that the query has.
        rate: FPIR that the user accepts for `known`; one of `calibration.rates`.

    Raises:
        DataError: For a rate that no threshold was made for.
    """
    ranked = tuple(sorted(candidates, key=lambda c: (-c.score, c.name)))
    if calibration is None:
        return Decision("undecided", "the gallery is not calibrated: calibrate it first", None, ranked)
    if not (validity := calibration.valid_for(now)):
        return Decision("undecided", validity.reason, None, ranked)
    if not ranked:
        return Decision("undecided", "no enrolled row shares a modality with the query: enrol some that do")
    strict, lax = calibration.point(subset, rate), calibration.point(subset, unsure_rate(rate))
    if strict.threshold is None or lax.threshold is None:
        return Decision("undecided", (strict if strict.threshold is None else lax).refusal, None, ranked)
    expected = rate_after_growth(rate, calibration.bound.identities, now.identities)
    promise = describe_rate(expected)
    if strict.subset != subset and subset != ANY:
        promise += f" on average over all subsets; too few searches with {subset} alone were calibrated"
    above = tuple(c for c in ranked if c.score > strict.threshold.value)
    near = tuple(c for c in ranked if c.score > min(lax.threshold.value, strict.threshold.value))
    if len(above) == 1:
        return Decision("known", promise, above[0].name, near, expected)
    if above:
        return Decision(
            "unsure", f"{len(above)} identities pass the threshold; {promise}", None, near, expected
        )
    if near:
        return Decision(
            "unsure", f"similar, but below the threshold at which {promise}", None, near, expected
        )
    return Decision("unknown", f"nobody is similar enough; {promise}", None, (), expected)


def describe_rate(rate: float) -> str:
    """An FPIR in words: "one stranger in 300 would be taken for somebody"."""
    return f"one stranger in {max(1, round(1 / rate)):,} would be taken for somebody"
