"""The models of a plan one below the other, with error bars over seeds."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from slimreid.errors import ConfigError
from slimreid.visual.style import LIGHT, Look, new_axes


def models_plot(
    models: Mapping[str, Sequence[float]], look: Look = LIGHT, *, xlabel: str = "mAP (points)"
) -> Figure:
    """One row per model, {name: a value from 0 to 1 per seed}: mean with error bar, seeds as small dots.

    Raises `ConfigError` without models.
    """
    if not models:
        raise ConfigError("a plot of models needs at least one finished run")
    with look.drawing():
        figure, (axes,) = new_axes(look, height=0.9 + 0.42 * len(models))
        for number, values in enumerate(models.values()):
            shares = [100 * value for value in values]
            mean = statistics.fmean(shares)
            spread = statistics.stdev(shares) if len(shares) > 1 else None
            colour = look.series[0]
            axes.errorbar(mean, number, xerr=spread, fmt="o", color=colour, capsize=4, elinewidth=1.6)
            axes.plot(shares, [number] * len(shares), ".", color=colour, alpha=0.45, markersize=5, zorder=1)
            axes.annotate(f"{mean:.1f}", (mean, number), (0, 7), textcoords="offset points", ha="center")
        names = [textwrap.fill(name, 32) for name in models]
        axes.set(yticks=range(len(models)), yticklabels=names, xlabel=xlabel)
        axes.set_ylim(len(models) - 0.4, -0.75)
        axes.margins(x=0.12)
    return figure
