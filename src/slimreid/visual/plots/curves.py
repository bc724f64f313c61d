"""Curves of one or more runs: losses and mAP over training, and CMC.

Every function takes {name of the run: its data} and overlays the runs; shares are drawn as points of 100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from slimreid.arrays import Doubles
from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.visual.style import LIGHT, Look, check_names, legend_name, line_style, new_axes

Rows = Sequence[Mapping[str, Any]]
"""Rows of a run's `metrics.jsonl`."""

TOTAL, ACCURACY = "total", "accuracy"
_POINTS = 200
"""Most points of a line: more cannot be seen and would make the file large."""


def loss_curves(runs: Mapping[str, Rows], look: Look = LIGHT) -> Figure:
    """One panel per loss, the total first; a line per run over its updates.

    Long runs are shown as means over equal stretches of updates. Raises `DataError` without rows.
    """
    check_names(list(runs), "loss curves")
    found = {name: _losses(rows) for name, rows in runs.items()}
    names = list(dict.fromkeys(loss for losses in found.values() for loss in losses))
    if not names:
        raise DataError(f"{', '.join(runs)}: no rows of kind 'step' with training losses")
    names.sort(key=lambda name: name != TOTAL)
    columns = 1 if len(names) == 1 else 2
    lines = math.ceil(len(names) / columns)
    with look.drawing():
        figure, axes = new_axes(look, lines, columns, height=0.5 + 1.9 * lines)
        for panel, loss in zip(axes, names, strict=False):
            panel.set_title(loss)
            for number, (run, losses) in enumerate(found.items()):
                if loss in losses:
                    x, y = losses[loss]
                    panel.plot(x, y, label=legend_name(run), **line_style(look, number, len(x)))
            _from_zero(panel)
            panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for panel in axes[len(names) :]:
            panel.set_axis_off()
        figure.supxlabel("update", fontsize=12)
        if len(runs) > 1:
            named = axes[0].get_legend_handles_labels()
            figure.legend(*named, loc="outside upper center", ncols=min(len(runs), 2))
    return figure


def map_curves(runs: Mapping[str, Rows], look: Look = LIGHT) -> Figure:
    """mAP over epochs on each part that was evaluated (`val`, `test`); the chosen epoch is ringed.

    Raises `DataError` if none was.
    """
    check_names(list(runs), "mAP curves")
    with look.drawing():
        figure, (axes,) = new_axes(look)
        number = 0
        rings: list[tuple[int, float]] = []
        for run, rows in runs.items():
            epochs = [row for row in rows if row.get("kind") == "epoch"]
            chosen = next((row["best"]["epoch"] for row in reversed(epochs) if row.get("best")), None)
            for part in ("val", "test"):
                points = [
                    (int(row["epoch"]), 100 * float(row[part]["map"]))
                    for row in epochs
                    if "map" in (row.get(part) or {})
                ]
                if not points:
                    continue
                x, y = zip(*points, strict=True)
                name = part if len(runs) == 1 else f"{run}, {part}"
                axes.plot(x, y, label=legend_name(name), **line_style(look, number, len(x)))
                rings += [(epoch, value) for epoch, value in points if epoch == chosen]
                number += 1
        if not number:
            raise DataError(
                f"{', '.join(runs)}: no epoch was evaluated for 'map'; "
                "train with val or test rows in the manifest"
            )
        if rings:
            x, y = zip(*rings, strict=True)
            ring = Line2D(x, y, linestyle="none", marker="o", markersize=13, markerfacecolor="none")
            ring.set(markeredgecolor=look.accent, markeredgewidth=2, label="chosen", zorder=3)
            axes.add_line(ring)
        axes.set(xlabel="epoch", ylabel="mAP (points)")
        _from_zero(axes, least=10.0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.legend(loc="best")
    return figure


def cmc_curves(results: Mapping[str, RetrievalResult], look: Look = LIGHT, *, max_rank: int = 20) -> Figure:
    """Share of queries with a correct match among the first k."""
    check_names(list(results), "CMC curves")
    with look.drawing():
        figure, (axes,) = new_axes(look)
        for number, (name, result) in enumerate(results.items()):
            shares = 100 * result.cmc[:max_rank]
            ranks = np.arange(1, len(shares) + 1)
            label = f"{legend_name(name)}: rank-1 {shares[0]:.1f}"
            axes.plot(ranks, shares, label=label, **line_style(look, number, len(shares)))
        low = min(float(result.cmc[0]) for result in results.values())
        axes.set(xlabel="rank", ylabel="queries with a hit (%)")
        axes.set_ylim(max(0.0, math.floor(low * 10) * 10 - 5), 101)
        ticks = [k for k in (1, 5, 10, 15, 20, 30, 40, 50) if k <= max_rank]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.legend(loc="lower right")
    return figure


def _losses(rows: Rows) -> dict[str, Doubles]:
    """Per loss its update and value, without training accuracy, which is no loss."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get("kind") != "step":
            continue
        for name, value in row["train"].items():
            if name != ACCURACY and value is not None and math.isfinite(value):
                found.setdefault(name, []).append((row["step"], value))
    return {name: _thinned(np.array(pairs, float)) for name, pairs in found.items()}


def _thinned(pairs: Doubles) -> Doubles:
    """Places and values (n, 2) -> both (2, m): means of at most `_POINTS` equal stretches."""
    parts = np.array_split(pairs, min(len(pairs), _POINTS))
    means: Doubles = np.array([part.mean(axis=0) for part in parts]).T
    return means


def _from_zero(axes: Axes, least: float = 0.0) -> None:
    """Start the axis at zero, and leave room above so that no marker is cut."""
    low, high = min(0.0, axes.dataLim.y0), max(least, axes.dataLim.y1)
    axes.set_ylim(low, high + 0.07 * (high - low))
