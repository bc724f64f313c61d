"""Figures as text, one way for all tables and pages: shares of 1 in points of 100, tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from slimreid.arrays import Doubles
from slimreid.evaluation.metrics.result import Interval

NOTHING = "–"
"""Where there is no figure."""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """A table in Markdown, the first column to the left, the others to the right if they hold numbers.

    It ends with a new line.
    """
    head, *body = (f"| {' | '.join(map(escaped, cells))} |\n" for cells in (columns, *rows))
    return "".join([head, f"|---{('|---:' if numbers else '|---') * (len(columns) - 1)}|\n", *body])


def escaped(text: str) -> str:
    """A text as a cell or heading in Markdown."""
    return text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def points(share: float) -> str:
    """`61.2`, or a dash for NaN."""
    return NOTHING if math.isnan(share) else f"{100 * share:.1f}"


def signed_points(share: float) -> str:
    """A difference with its sign, `+0.3` or `−0.3`."""
    return f"{100 * share:+.1f}".replace("-", "−")


def interval_points(interval: Interval) -> str:
    """`58.0 to 64.1`, or a dash where there are too few identities for an interval."""
    return NOTHING if math.isnan(interval.low) else f"{points(interval.low)} to {points(interval.high)}"


def signed_interval(interval: Interval) -> str:
    """`−0.3 to +2.6`: the interval of a difference."""
    return f"{signed_points(interval.low)} to {signed_points(interval.high)}"


def points_range(shares: Doubles) -> str:
    """`5.6` where all shares print alike, else `5.6 to 7.1`; NaN is passed over, a dash where all are."""
    known = shares[np.isfinite(shares)]
    if not known.size:
        return NOTHING
    low, high = points(float(known.min())), points(float(known.max()))
    return low if low == high else f"{low} to {high}"
