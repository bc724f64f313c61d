"""The front as a picture: mAP against how many times as fast as the unslimmed model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from front_points import FREE, METHODS, TRAINED
from slimreid.errors import ConfigError
from slimreid.visual.style import LIGHT, Look, marker, new_axes

ALLOWED = 0.01
"""mAP that the shipped point may lose."""


def front_plot(files: Sequence[Mapping[str, Any]], look: Look = LIGHT) -> Figure:
    """One panel per dataset; a colour and marker per method, filled when trained, hollow when not.

    `files` are what files of points hold. Bars are the paired bootstrap intervals of the difference to the
    unslimmed model, drawn from its mAP; the dashed line is the unslimmed model, the dotted one a point
    below. Raises `ConfigError` when there is nothing to draw.
    """
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for file in files:
        panels.setdefault(file["settings"]["data"], []).extend(file["points"])
    panels = {name: points for name, points in panels.items() if points}
    if not panels:
        raise ConfigError("the files hold no points yet")
    used = [m for m in METHODS if any(p["method"] == m for points in panels.values() for p in points)]
    with look.drawing():
        figure, axes = new_axes(look, rows=len(panels), height=0.7 + 3.1 * len(panels))
        for one, (name, points) in zip(axes, panels.items(), strict=True):
            _panel(one, look, points)
            one.set_title(name)
            one.set_ylabel("mAP (points)")
        axes[-1].set_xlabel("times as fast as unslimmed")
        kinds = [k for k in (TRAINED, FREE) if any(p["kind"] == k for ps in panels.values() for p in ps)]
        figure.legend(handles=_legend(look, used, kinds), loc="outside lower center", ncols=2)
    return figure


def _panel(axes: Axes, look: Look, points: Sequence[Mapping[str, Any]]) -> None:
    # Trained points are means over seeds, and so is what they are set against.
    given = [p for p in points if p["kind"] == TRAINED] or points
    best = 100 * statistics.fmean(point["unslimmed_map"] for point in given)
    axes.axhline(best, color=look.faint, linewidth=1.2, linestyle="--", zorder=1)
    axes.axhline(best - 100 * ALLOWED, color=look.faint, linewidth=1.2, linestyle=":", zorder=1)
    for method in METHODS:
        for kind in (FREE, TRAINED):
            some = [p for p in points if (p["method"], p["kind"]) == (method, kind)]
            _series(axes, look, METHODS.index(method), sorted(some, key=lambda p: float(p["ratio"])), kind)
    axes.plot(1, best, marker="*", markersize=12, color=look.ink, linestyle="none", zorder=5)
    axes.annotate(
        f"unslimmed {best:.1f}", (1, best), (8, 6), textcoords="offset points", color=look.ink, fontsize=10
    )
    axes.margins(x=0.08, y=0.12)


def _series(axes: Axes, look: Look, number: int, points: Sequence[Mapping[str, Any]], kind: str) -> None:
    if not points:
        return
    colour = look.series[number % len(look.series)]
    x, y = [p["ratio"] for p in points], [100 * p["map"] for p in points]
    filled = kind == TRAINED
    axes.plot(
        x,
        y,
        color=colour,
        marker=marker(number),
        markersize=7,
        markeredgewidth=1.6,
        markerfacecolor=colour if filled else look.paper,
        linewidth=1.8 if filled else 1.0,
        linestyle="-" if filled else (0, (2, 1.5)),
        zorder=4 if filled else 3,
    )
    if not filled:
        return
    for at, point in zip(x, points, strict=True):
        if point["difference"]:
            low, high = (100 * (point["unslimmed_map"] + point["difference"][end]) for end in ("low", "high"))
            axes.plot([at, at], [low, high], color=colour, linewidth=1.2, alpha=0.6, zorder=2)


def _legend(look: Look, methods: Sequence[str], kinds: Sequence[str]) -> list[Line2D]:
    handles = []
    for method in methods:
        number = METHODS.index(method)
        colour = look.series[number % len(look.series)]
        handles.append(Line2D([], [], color=colour, marker=marker(number), markersize=7, label=method))
    for kind in kinds:
        face = look.ink if kind == TRAINED else look.paper
        style = "-" if kind == TRAINED else (0, (2, 1.5))
        handles.append(
            Line2D(
                [],
                [],
                color=look.ink,
                marker="o",
                markersize=7,
                markerfacecolor=face,
                linestyle=style,
                label=kind,
            )
        )
    return handles
