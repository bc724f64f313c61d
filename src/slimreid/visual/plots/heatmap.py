"""The missing-modality matrix as a heat map with its numbers written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from slimreid.arrays import Doubles
from slimreid.errors import DataError
from slimreid.evaluation.reports.formatting import points_range
from slimreid.visual.style import HEAT, LIGHT, WIDTH, Look, check_names, new_axes


def missing_heatmap(
    matrices: Mapping[str, Doubles],
    subsets: Sequence[str],
    look: Look = LIGHT,
    *,
    chance: float | Doubles | None = None,
) -> Figure:
    """mAP for every set of modalities that the query (rows) and the gallery (columns) may have.

    Several runs are drawn one above the other on one colour scale. The colour bar marks `chance`; cells that
    do not beat theirs have a dashed frame and italic numbers. A NaN is a hatched cell: nothing was measured.

    Args:
        matrices: Name of the run -> mAP (S, S), 0 to 1.
        subsets: Short names such as `rn`, in the order of rows and columns.
        look: Colours.
        chance: mAP of a random order, one for all cells or (S, S).

    Raises:
        DataError: A shape does not fit, or no cell has a value.
    """
    check_names(list(matrices), "heat map")
    shape = (len(subsets), len(subsets))
    for name, matrix in matrices.items():
        if matrix.shape != shape:
            raise DataError(f"heat map '{name}' is {matrix.shape}, but there are {shape} names")
    known = np.concatenate([m[np.isfinite(m)] for m in matrices.values()])
    if not len(known):
        raise DataError("heat map: every cell is NaN; nothing was measured")
    levels = _levels(chance, shape)
    low = float(np.nanmin([known.min(), *levels.ravel()]))
    scale = Normalize(100 * max(0.0, low), 100 * max(float(known.max()), low + 1e-6))
    side = (WIDTH - 1.5) / len(subsets)
    with look.drawing():
        height = len(matrices) * (max(side * 0.72, 0.36) * len(subsets) + 1.0) + 0.1
        figure, axes = new_axes(look, len(matrices), height=height)
        for panel, (name, matrix) in zip(axes, matrices.items(), strict=True):
            _draw(panel, 100 * matrix, look, scale, 100 * levels)
            panel.set_xticks(range(len(subsets)), subsets)
            panel.set_yticks(range(len(subsets)), subsets)
            panel.set(xlabel="gallery has", ylabel="query has")
            panel.set_title(name)
        shades = matplotlib.cm.ScalarMappable(scale, HEAT)
        bar = figure.colorbar(shades, ax=axes, fraction=0.05, pad=0.03)
        bar.outline.set_visible(False)
        bar.ax.grid(False)
        bar.set_label("mAP (points)")
        if np.isfinite(levels).any():
            _mark_chance(bar.ax, levels, look)
    return figure


def _levels(chance: float | Doubles | None, shape: tuple[int, int]) -> Doubles:
    """The chance level of every cell, NaN where there is none."""
    given = np.asarray(np.nan if chance is None else chance, dtype=np.float64)
    if given.shape not in ((), shape):
        raise DataError(f"heat map: chance is {given.shape}, but there are {shape} cells")
    return np.broadcast_to(given, shape)


def _mark_chance(bar: Axes, levels: Doubles, look: Look) -> None:
    """A line at the chance level, or a band from the lowest to the highest, and its number."""
    low, high = 100 * float(np.nanmin(levels)), 100 * float(np.nanmax(levels))
    bar.axhline(low, color=look.wrong, linewidth=3)
    if f"{low:.1f}" != f"{high:.1f}":
        bar.axhspan(low, high, xmax=0.4, color=look.wrong)  # the colours must be seen beside it
    bar.annotate(
        f"chance {points_range(levels)}",
        (0, low),
        xycoords=("axes fraction", "data"),
        xytext=(-3, 3),
        textcoords="offset points",
        color=look.wrong,
        rotation=90,
        ha="right",
        va="bottom",
        fontsize=10,
    )


def _draw(axes: Axes, points: Doubles, look: Look, scale: Normalize, chance: Doubles) -> None:
    """The cells of one matrix (R, C); `chance` has the level of each, NaN where there is none."""
    R, C = points.shape
    colours = matplotlib.colormaps[HEAT]
    axes.set(xlim=(-0.5, C - 0.5), ylim=(R - 0.5, -0.5))
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    size = 10 if C <= 8 else 8
    for r in range(R):
        for c in range(C):
            number = points[r, c]
            corner = (c - 0.48, r - 0.48)
            if not np.isfinite(number):
                empty = Rectangle(corner, 0.96, 0.96, facecolor=look.paper, edgecolor=look.edge, hatch="//")
                axes.add_patch(empty)
                continue
            shade = colours(scale(number))
            axes.add_patch(Rectangle(corner, 0.96, 0.96, facecolor=shade, edgecolor="none"))
            at_chance = number <= chance[r, c]
            ink = ink_on(shade)
            if at_chance:
                inner = (c - 0.42, r - 0.4)
                axes.add_patch(Rectangle(inner, 0.84, 0.8, fill=False, edgecolor=ink, linestyle=(0, (3, 2))))
            style = "italic" if at_chance else "normal"
            axes.text(c, r, f"{number:.1f}", color=ink, ha="center", va="center", fontsize=size, style=style)


def ink_on(shade: tuple[float, float, float, float] | str) -> str:
    """Black or white, whichever is read better on a colour."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(shade)]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#101214" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fefefe"
