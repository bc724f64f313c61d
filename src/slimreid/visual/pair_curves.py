"""True against false pairs, by one threshold on their score: ROC curves and histograms of several runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from slimreid.errors import DataError
from slimreid.evaluation.roc import BINS, FALSE_MATCH_RATES, ScoreHistogram
from slimreid.visual.style import LIGHT, Look, check_names, line_style, new_axes

Floats = NDArray[np.float64]

_NO_FALSE_MATCH = 1e-12
"""Stands for a false match rate of zero, which a logarithmic axis does not have; left of what is shown."""
_POINTS = 400
"""Most points of a curve: more cannot be seen and would make the file large."""


def roc_curves(
    histograms: Mapping[str, ScoreHistogram],
    look: Look = LIGHT,
    *,
    rates: Sequence[float] = FALSE_MATCH_RATES,
) -> Figure:
    """True match rate over the false match rate (logarithmic), with the operating points.

    An operating point is hollow where there are too few false pairs to measure its rate. Raises
    `DataError` as `ScoreHistogram.roc`.
    """
    check_names(list(histograms), "ROC curves")
    with look.drawing():
        figure, (axes,) = new_axes(look, height=3.8)
        lowest = 1.0
        for number, (name, histogram) in enumerate(histograms.items()):
            _, false_rate, true_rate = histogram.roc()
            false_rate, true_rate = _staircase(false_rate, true_rate)
            style = line_style(look, number)
            axes.plot(false_rate, 100 * true_rate, label=name, drawstyle="steps-post", **style)
            lowest = min(lowest, float(false_rate[1]))
            for point in histogram.operating_points(rates):
                fill = style["color"] if point.supported else look.paper
                axes.plot(
                    point.false_match_rate,
                    100 * point.true_match_rate,
                    "o",
                    color=style["color"],
                    markerfacecolor=fill,
                    markersize=8,
                )
                if len(histograms) == 1:
                    axes.annotate(
                        f"{100 * point.true_match_rate:.1f}",
                        (point.false_match_rate, 100 * point.true_match_rate),
                        xytext=(-6, 7),
                        textcoords="offset points",
                        ha="right",
                    )
        lowest = min(lowest, *rates)
        chance = np.geomspace(lowest, 1, 50)
        axes.plot(chance, 100 * chance, color=look.faint, linestyle=":", linewidth=1.5, label="chance")
        axes.set(xscale="log", xlim=(lowest / 2.5, 1), ylim=(0, 103))
        axes.set(xlabel="false match rate", ylabel="true match rate (%)")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(loc="best")
    return figure


def score_histograms(
    histograms: Mapping[str, ScoreHistogram], look: Look = LIGHT, *, rate: float | None = 1e-2
) -> Figure:
    """How the scores of true and of false pairs lie apart, one panel per run, each over its own range.

    Each kind is drawn as a density of its own, since false pairs are many more. The threshold at the false
    match rate `rate` is marked where there is one.
    """
    check_names(list(histograms), "score histograms")
    with look.drawing():
        figure, axes = new_axes(look, len(histograms), height=0.9 + 2.1 * len(histograms))
        for panel, (name, histogram) in zip(axes, histograms.items(), strict=True):
            edges, true, false = _zoomed(histogram)
            step = edges[1] - edges[0]
            for label, counts, colour, hatch, line in (
                ("false pairs", false, look.wrong, "///", (0, (4, 1.5))),
                ("true pairs", true, look.right, None, "-"),
            ):
                density = counts / max(1, counts.sum()) / step
                panel.stairs(
                    density,
                    edges,
                    fill=True,
                    facecolor=colour,
                    edgecolor=colour,
                    alpha=0.3,
                    hatch=hatch,
                    linewidth=0,
                )
                panel.stairs(
                    density,
                    edges,
                    color=colour,
                    linestyle=line,
                    linewidth=1.8,
                    label=f"{label} ({counts.sum():,})",
                )
            point = histogram.operating_points([rate])[0] if rate else None
            if point is not None and point.threshold is not None:
                panel.axvline(point.threshold, color=look.ink, linestyle=":", linewidth=1.5)
                caught = f"{100 * point.true_match_rate:.0f} % true"
                # A narrow range needs more decimals for the threshold to be found on the axis.
                digits = max(2, math.ceil(-math.log10(float(edges[-1] - edges[0]))) + 2)
                text = f"{point.threshold:.{digits}f}: {caught},\n{100 * point.false_match_rate:g} % false"
                panel.annotate(
                    text,
                    (point.threshold, 1),
                    xycoords=("data", "axes fraction"),
                    xytext=(4, -2),
                    textcoords="offset points",
                    va="top",
                    fontsize=10,
                )
            panel.set(yticks=[], ylim=(0, panel.get_ylim()[1] * 1.3))
            panel.set_title(name)
            panel.legend(loc="upper left", fontsize=10)
        axes[-1].set_xlabel("score (cosine similarity)")
    return figure


def _staircase(false_rate: Floats, true_rate: Floats, points: int = _POINTS) -> tuple[Floats, Floats]:
    """The curve from left to right at places that differ on a logarithmic axis.

    The first place stands for no false match at all; up to the second nothing better was measured.
    """
    x, y = false_rate[::-1], true_rate[::-1]
    last = np.append(np.flatnonzero(np.diff(x)), len(x) - 1)  # the highest of a vertical piece
    x, y = x[last], y[last]
    if len(x) > points:
        wanted = np.geomspace(x[1], x[-1], points)
        chosen = np.unique(np.searchsorted(x, wanted).clip(max=len(x) - 1))
        x, y = x[np.append(0, chosen)], y[np.append(0, chosen)]
    x = x.copy()
    x[0] = _NO_FALSE_MATCH
    return x, y


def _zoomed(histogram: ScoreHistogram, bars: int = 64) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Edges and counts of about `bars` bins over the range that is in use."""
    used = np.flatnonzero(histogram.true + histogram.false)
    if not len(used):
        raise DataError("the histogram is empty; evaluate at least one pair")
    share = (used[-1] - used[0] + 1) / BINS
    bins = min(BINS, 2 ** max(1, round(math.log2(bars / share))))
    edges, true, false = histogram.coarse(bins)
    width = BINS // bins
    first, last = int(used[0]) // width, int(used[-1]) // width
    return edges[first : last + 2], true[first : last + 1], false[first : last + 1]
