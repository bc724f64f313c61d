"""What became of the choice of patches during training, as curves of several runs in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slimreid.errors import DataError
from slimreid.visual.style import LIGHT, WIDTH, Look, check_names, line_style, new_axes

Summary = Mapping[str, Sequence[Any]]
"""Lists over epochs, as `selection_summary` makes them."""


def selection_curves(runs: Mapping[str, Summary], look: Look = LIGHT) -> Figure:
    """Three panels over epochs: kept patches on the object, kept again, and the gradient of the score.

    Shares are points of 100; the dotted line is what a choice by chance would have. The gradient is the
    median of each epoch on a logarithmic axis. A panel for which no run has figures says so. Raises
    `DataError` without any run that was watched.
    """
    check_names(list(runs), "selection curves")
    if not any(run.get("epoch") for run in runs.values()):
        raise DataError(f"{', '.join(runs)}: no choice was watched; train with train.watch_selection true")
    panels = (
        ("kept patches on the object (%)", "on_object", "chance"),
        ("kept patches that were kept before (%)", "same", "kept_share"),
        ("gradient norm of the score", "gradient", None),
    )
    last = max(run["epoch"][-1] for run in runs.values() if run.get("epoch")) or 1
    columns = 1 if max(map(len, runs)) > 22 else 2
    legend = 0.26 * -(-(len(runs) + 1) // columns)
    with look.drawing():
        figure, axes = new_axes(look, 3, 1, width=WIDTH + 0.6, height=7.0 + legend)
        for panel, (title, name, chance) in zip(axes, panels, strict=True):
            panel.set_title(title)
            drawn = [
                _line(panel, look, number, label, run, name)
                for number, (label, run) in enumerate(runs.items())
            ]
            if chance and any(drawn):
                _chance(panel, look, runs, chance)
            if not any(drawn):
                panel.text(0.5, 0.5, "no figures", transform=panel.transAxes, ha="center", color=look.faint)
            elif chance is None:
                panel.set_yscale("log")
            panel.set_xlim(-0.02 * last, 1.02 * last)
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes[-1].set_xlabel("epoch")
        lines = {str(line.get_label()): line for panel in axes for line in panel.lines}
        named = {label: line for label, line in lines.items() if not label.startswith("_")}
        figure.legend(list(named.values()), list(named), loc="outside upper center", ncols=columns)
    return figure


def _line(axes: Axes, look: Look, number: int, label: str, run: Summary, name: str) -> bool:
    """Draw one run; whether it has anything to draw."""
    scale = 1.0 if name == "gradient" else 100.0
    points = [
        (epoch, scale * value)
        for epoch, value in zip(run.get("epoch", ()), run.get(name, ()), strict=False)
        if value is not None and (name != "gradient" or value > 0)
    ]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, label=label, **line_style(look, number, len(x)))
    return bool(points)


def _chance(axes: Axes, look: Look, runs: Mapping[str, Summary], name: str) -> None:
    """A dotted line per level of chance; runs that keep the same share have the same."""
    levels = {
        round(100 * values[-1], 1)
        for run in runs.values()
        if (values := [v for v in run.get(name, ()) if v is not None])
    }
    for number, level in enumerate(sorted(levels)):
        axes.axhline(
            level,
            color=look.faint,
            linestyle=":",
            linewidth=1.5,
            label="by chance" if number == 0 else "_chance",
            zorder=1,
        )
