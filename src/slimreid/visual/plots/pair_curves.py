"""True against false pairs, by one threshold on their score: ROC curves and histograms of several runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from slimreid.arrays import Doubles
from slimreid.evaluation.metrics.roc import FALSE_MATCH_RATES, RocCurve
from slimreid.visual.style import LIGHT, Look, check_names, legend_name, line_style, new_axes

_NO_FALSE_MATCH = 1e-12
"""Stands for a false match rate of zero, which a logarithmic axis does not have; left of what is shown."""
_POINTS = 400
"""Most points of a curve: more cannot be seen and would make the file large."""


def roc_curves(
    curves: Mapping[str, RocCurve], look: Look = LIGHT, *, rates: Sequence[float] = FALSE_MATCH_RATES
) -> Figure:
    """True match rate over the false match rate (logarithmic), with the operating points.

    An operating point is hollow where there are too few false pairs to measure its rate.
    """
    check_names(list(curves), "ROC curves")
    with look.drawing():
        figure, (axes,) = new_axes(look, height=3.8)
        lowest = 1.0
        for number, (name, curve) in enumerate(curves.items()):
            false_rate, true_rate = _staircase(curve.false_rate, curve.true_rate)
            style = line_style(look, number)
            axes.plot(false_rate, 100 * true_rate, label=legend_name(name), drawstyle="steps-post", **style)
            lowest = min(lowest, float(false_rate[1]))
            for point in curve.operating_points(rates):
                x, y, colour = point.false_match_rate, 100 * point.true_match_rate, style["color"]
                fill = colour if point.supported else look.paper
                axes.plot(x, y, "o", color=colour, markerfacecolor=fill, markersize=8)
                if len(curves) == 1:
                    axes.annotate(f"{y:.1f}", (x, y), (-6, 7), textcoords="offset points", ha="right")
        lowest = min(lowest, *rates)
        chance = np.geomspace(lowest, 1, 50)
        axes.plot(chance, 100 * chance, color=look.faint, linestyle=":", linewidth=1.5, label="chance")
        axes.set(xscale="log", xlim=(lowest / 2.5, 1), ylim=(0, 103))
        axes.set(xlabel="false match rate", ylabel="true match rate (%)")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(loc="best")
    return figure


def score_histograms(
    curves: Mapping[str, RocCurve], look: Look = LIGHT, *, rate: float | None = 1e-2
) -> Figure:
    """How the scores of true and of false pairs lie apart, one panel per run, each over its own range.

    Each kind is drawn as a density of its own, since false pairs are many more. The threshold at the false
    match rate `rate` is marked where there is one.
    """
    check_names(list(curves), "score histograms")
    with look.drawing():
        figure, axes = new_axes(look, len(curves), height=0.9 + 2.1 * len(curves))
        for panel, (name, curve) in zip(axes, curves.items(), strict=True):
            edges, true, false = curve.edges, curve.true, curve.false
            step = edges[1] - edges[0]
            for label, counts, colour, hatch, line in (
                ("false pairs", false, look.wrong, "///", (0, (4, 1.5))),
                ("true pairs", true, look.right, None, "-"),
            ):
                density = counts / max(1, counts.sum()) / step
                area = panel.stairs(density, edges, fill=True, facecolor=colour, edgecolor=colour, alpha=0.3)
                area.set(hatch=hatch, linewidth=0)
                text = f"{label} ({counts.sum():,})"
                panel.stairs(density, edges, color=colour, linestyle=line, linewidth=1.8, label=text)
            point = curve.operating_points([rate])[0] if rate else None
            if point is not None and point.threshold is not None:
                # A narrow range needs more decimals for the threshold to be found on the axis.
                digits = max(2, math.ceil(-math.log10(float(edges[-1] - edges[0]))) + 2)
                rates = f"{100 * point.true_match_rate:.0f} % true, {100 * point.false_match_rate:g} % false"
                text = f"threshold {point.threshold:.{digits}f}: {rates} matches"
                panel.axvline(point.threshold, color=look.ink, linestyle=":", linewidth=1.5, label=text)
            panel.set(yticks=[], ylim=(0, panel.get_ylim()[1] * 1.75))  # room for the legend
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.set_title(name)
            panel.legend(loc="upper left", fontsize=10)
        axes[-1].set_xlabel("score")
    return figure


def _staircase(false_rate: Doubles, true_rate: Doubles) -> tuple[Doubles, Doubles]:
    """The curve from left to right at places that differ on a logarithmic axis.

    The first place stands for no false match at all; up to the second nothing better was measured.
    """
    x, y = false_rate[::-1], true_rate[::-1]
    last = np.append(np.flatnonzero(np.diff(x)), len(x) - 1)  # the highest of a vertical piece
    x, y = x[last], y[last]
    if len(x) > _POINTS:
        wanted = np.geomspace(x[1], x[-1], _POINTS)
        chosen = np.unique(np.searchsorted(x, wanted).clip(max=len(x) - 1))
        x, y = x[np.append(0, chosen)], y[np.append(0, chosen)]
    x = x.copy()
    x[0] = _NO_FALSE_MATCH
    return x, y
