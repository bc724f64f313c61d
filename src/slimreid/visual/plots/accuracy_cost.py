"""mAP of several runs against what they compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from slimreid.evaluation.metrics.result import Interval
from slimreid.visual.style import LIGHT, Look, check_names, legend_name, marker, new_axes


@dataclass(frozen=True)
class CostPoint:
    """One run: what it computes and finds."""

    name: str
    gflops: float
    map: float
    """0 to 1."""
    interval: Interval
    """Of the mAP."""


def accuracy_cost_plot(points: Sequence[CostPoint], look: Look = LIGHT) -> Figure:
    """mAP with its interval over GFLOPs, one marker per run; raises `ConfigError` without runs."""
    check_names([point.name for point in points], "accuracy against cost")
    with look.drawing():
        figure, (axes,) = new_axes(look)
        highest = max(point.gflops for point in points)
        for number, point in enumerate(points):
            bounds = (point.interval.low, point.interval.high)
            below, above = (0.0 if math.isnan(b) else 100 * abs(point.map - b) for b in bounds)
            axes.errorbar(
                point.gflops,
                100 * point.map,
                yerr=[[below], [above]],
                marker=marker(number),
                color=look.series[number % len(look.series)],
                linestyle="none",
                label=legend_name(point.name),
                markersize=9,
                capsize=4,
                elinewidth=1.5,
            )
        axes.set(xlabel="GFLOPs per sample", ylabel="mAP (points)", xlim=(0, 1.12 * highest))
        axes.margins(y=0.15)
        figure.legend(loc="outside upper center", ncols=min(3, len(points)))
    return figure
