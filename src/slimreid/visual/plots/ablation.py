"""An ablation as a picture: a figure over the values of an option, with error bars over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slimreid.errors import ConfigError
from slimreid.visual.style import LIGHT, Look, line_style, new_axes


@dataclass(frozen=True)
class GridPoint:
    """Where a row of an ablation stands in its grid, and what its seeds found (0 to 1)."""

    options: Mapping[str, str]
    """Option -> value, as text, in the order of the axes."""
    values: tuple[float, ...]
    """One per seed."""


def ablation_plot(points: Sequence[GridPoint], look: Look = LIGHT, *, ylabel: str = "mAP (points)") -> Figure:
    """The first option along the axis, one line per combination of the others; small dots are seeds.

    Error bars are the standard deviation over seeds. Numbers stand where they belong, words side by side.
    Raises `ConfigError` without points.
    """
    if not points:
        raise ConfigError("an ablation plot needs at least one finished run")
    axis, *others = points[0].options
    ticks = list(dict.fromkeys(point.options[axis] for point in points))
    places = _places(ticks)
    lines: dict[str, list[GridPoint]] = {}
    for point in points:
        name = ", ".join(f"{_short(key)} = {point.options[key]}" for key in others)
        lines.setdefault(name, []).append(point)
    with look.drawing():
        figure, (axes,) = new_axes(look)
        for number, (name, members) in enumerate(lines.items()):
            _line(axes, look, number, len(lines), name, members, axis, places)
        axes.set(xlabel=axis, ylabel=ylabel, xticks=list(places.values()), xticklabels=ticks)
        span = max(places.values()) - min(places.values()) or 1.0
        axes.set_xlim(min(places.values()) - 0.12 * span, max(places.values()) + 0.12 * span)
        axes.margins(y=0.15)
        if others:
            figure.legend(loc="outside lower center", ncols=1 if len(lines) > 4 else 2)
    return figure


def _line(
    axes: Axes,
    look: Look,
    number: int,
    count: int,
    name: str,
    members: Sequence[GridPoint],
    axis: str,
    places: Mapping[str, float],
) -> None:
    """One line: means with error bars, and the seeds behind them; lines stand a little beside each other."""
    steps = sorted(places.values())
    gap = min((b - a for a, b in pairwise(steps)), default=1.0)
    shift = 0.06 * gap * (number - (count - 1) / 2)
    members = sorted(members, key=lambda point: places[point.options[axis]])
    x = [places[point.options[axis]] + shift for point in members]
    y = [100 * statistics.fmean(point.values) for point in members]
    spread = [100 * statistics.stdev(p.values) if len(p.values) > 1 else 0.0 for p in members]
    style = line_style(look, number, len(x))
    bars = spread if any(spread) else None
    axes.errorbar(x, y, yerr=bars, label=name or None, capsize=4, elinewidth=1.4, **style)
    for at, point in zip(x, members, strict=True):
        if len(point.values) > 1:
            shares = [100 * value for value in point.values]
            axes.plot(
                [at] * len(shares), shares, ".", color=style["color"], alpha=0.45, markersize=5, zorder=1
            )


def _places(ticks: Sequence[str]) -> dict[str, float]:
    """Where each value stands: numbers at themselves if their labels have room there, all else in a row."""
    try:
        found = {tick: float(tick) for tick in ticks}
    except ValueError:
        return {tick: float(number) for number, tick in enumerate(ticks)}
    steps = sorted(found.values())
    gaps = [b - a for a, b in pairwise(steps)]
    if gaps and not 0 < max(gaps) <= 10 * min(gaps):
        return {tick: float(number) for number, tick in enumerate(sorted(ticks, key=lambda t: found[t]))}
    return found


def _short(key: str) -> str:
    return key.rpartition(".")[2]
