"""All looks as a heat map: one column per model, the mAP written in, the share of the clean mAP as colour."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from look_results import GOAL, LookResult
from looks import CLEAN
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from slimreid.errors import ConfigError
from slimreid.evaluation.reports.formatting import points
from slimreid.visual.plots.heatmap import ink_on
from slimreid.visual.style import HEAT, LIGHT, Look, new_axes


def looks_plot(results: Sequence[LookResult], look: Look = LIGHT) -> Figure:
    """Draw the results of one or several models on the same sets; raises `ConfigError` without any."""
    if not results:
        raise ConfigError("a picture of looks needs at least one result")
    names = list(results[0].looks)
    shares = [result.share(name) for result in results for name in names if name != CLEAN]
    scale = Normalize(100 * min([GOAL - 0.1, *shares]), 100)
    colours = matplotlib.colormaps[HEAT]
    with look.drawing():
        figure, (axes,) = new_axes(
            look, width=2.6 + 1.15 * max(2, len(results)), height=1.3 + 0.27 * len(names)
        )
        axes.set(xlim=(-0.5, len(results) - 0.5), ylim=(len(names) - 0.5, -0.5))
        axes.grid(False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for column, result in enumerate(results):
            for row, name in enumerate(names):
                share = result.share(name)
                shade = colours(scale(100 * share))
                axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=shade))
                style = "italic" if share < GOAL else "normal"
                text = points(result.looks[name].map)
                axes.text(column, row, text, color=ink_on(shade), ha="center", va="center", style=style)
        axes.set_xticks(range(len(results)), [result.name for result in results], rotation=20, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_title(f"mAP (points)\nitalic: below {100 * GOAL:.0f} % of clean")
        bar = figure.colorbar(matplotlib.cm.ScalarMappable(scale, HEAT), ax=axes, fraction=0.06, pad=0.03)
        bar.outline.set_visible(False)
        bar.ax.grid(False)
        bar.set_label("% of clean")
    return figure
