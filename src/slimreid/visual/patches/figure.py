"""The kept-patch figure: a row per modality, with image, score maps, kept patches and a token's weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from slimreid.arrays import Pixels
from slimreid.config.token_reduction import TERM_NAMES
from slimreid.errors import ConfigError
from slimreid.modalities import describe
from slimreid.visual.patches.kept_patches import (
    SCORE_COLOURS,
    WEIGHT_COLOURS,
    PatchStage,
    PatchView,
    brighten,
    dim_dropped,
    heat_over,
    outlines,
)
from slimreid.visual.style import LIGHT, Look, absent_box

OUTLINE = "#ffb000"
"""Amber is seen on photographs of every modality."""
_AREA = 1.9
"""Square inches of a picture."""
_GAP, _HEAD, _FOOT, _LABEL, _TITLE, _LEGEND = 0.13, 0.25, 0.22, 0.32, 0.4, 0.36
"""Inches: between pictures, above and below one, for the modality's name, the title, and the legend."""
_FINE = 320
"""Pixels of a picture's longer side, so that its patches have sharp edges."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One small picture with its title and caption; without pixels it is absent."""

    title: str
    caption: str = ""
    pixels: Pixels | None = None
    lines: Sequence[Sequence[tuple[float, float]]] = ()
    colours: str = ""
    """Colour map of its heat, if it has any."""


def view_panels(view: PatchView, *, token: int | None = None) -> list[list[Panel]]:
    """Rows of panels of one modality, one per stage.

    `token` chooses the merged token whose weights are shown; None takes the one that rests on the fewest
    patches. Raises `ConfigError` for a token that does not exist.
    """
    if view.image is None:
        return [[Panel(f"no {view.modality}")]]
    width, height = view.image.size
    factor = max(1, math.ceil(_FINE / max(width, height)))
    large = view.image.convert("RGB").resize((width * factor, height * factor), Image.Resampling.BICUBIC)
    image = Panel("image", f"{height}×{width}", np.asarray(large))
    pixels = brighten(np.asarray(large))
    rows = [[image]]
    for number, stage in enumerate(view.stages):
        if number:
            rows.append([])
        rows[-1] += _score_panels(view, stage, pixels)
        dimmed = dim_dropped(pixels, stage.kept, view.grid)
        lines = outlines(stage.kept, view.grid, pixels.shape[:2])
        rows[-1].append(Panel(stage.label, f"{stage.kept.sum()} of {len(stage.kept)}", dimmed, lines))
        if stage.weights is not None:
            rows[-1].append(_token_panel(view, stage, pixels, token))
    if token is not None and all(stage.weights is None for stage in view.stages):
        raise ConfigError("--token: there are no merge weights, because this token reduction does not merge")
    return rows


def _score_panels(view: PatchView, stage: PatchStage, pixels: Pixels) -> list[Panel]:
    panels = []
    named = {term if term in TERM_NAMES else f"by {term}": values for term, values in stage.terms.items()}
    if stage.score is not None:
        named["score"] = stage.score
    for title, values in named.items():
        if values is None:
            panels.append(Panel(f"no {title.removeprefix('by ')}"))
        else:
            heat = heat_over(pixels, values, view.grid)
            panels.append(Panel(title, _span(values), heat, colours=SCORE_COLOURS))
    return panels


def _token_panel(view: PatchView, stage: PatchStage, pixels: Pixels, token: int | None) -> Panel:
    assert stage.weights is not None
    T = len(stage.weights)
    if token is None:
        token = stage.sharpest_token()
    if not 0 <= token < T:
        raise ConfigError(f"--token {token} does not exist; merged tokens are 0 to {T - 1}")
    weights = np.where(stage.kept, stage.weights[token], np.nan)
    heat = heat_over(pixels, weights, view.grid, WEIGHT_COLOURS, alpha=0.75)
    return Panel(f"token {token}", f"to {100 * np.nanmax(weights):.1f} %", heat, colours=WEIGHT_COLOURS)


def _span(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    low, high = np.nanmin(values), np.nanmax(values)
    digits = 2 if high - low >= 0.02 or high == low else 3
    return f"{low:.{digits}f} – {high:.{digits}f}"


def draw_kept_patches(
    views: Sequence[PatchView],
    look: Look = LIGHT,
    *,
    token: int | None = None,
    title: str = "",
) -> Figure:
    """Draw the views of one sample, one modality below the other; `token` as in `view_panels`.

    Colours of a map go from its least value to its largest, which are written below it. Raises `ConfigError`
    without any image.
    """
    shown = next((view.image for view in views if view.image is not None), None)
    if shown is None:
        raise ConfigError("kept patches: there is no image to show")
    aspect = shown.height / shown.width
    width, height = math.sqrt(_AREA / aspect), math.sqrt(_AREA * aspect)
    rows = [
        (view, panels, first == 0)
        for view in views
        for first, panels in enumerate(view_panels(view, token=token))
    ]
    # A stage after the first has no image of its own: its maps start below those of the first.
    columns = max(len(panels) + (not first) for _, panels, first in rows)
    head = _TITLE if title else 0.05
    size = (
        _LABEL + columns * (width + _GAP) + 0.1,
        head + len(rows) * (_HEAD + height + _FOOT + 0.06) + _LEGEND,
    )
    with look.drawing():
        figure = Figure(figsize=size)
        if title:
            figure.text(0.1 / size[0], 1 - 0.12 / size[1], title, va="top", fontsize=12, weight="bold")
        for number, (view, panels, first) in enumerate(rows):
            bottom = size[1] - head - number * (_HEAD + height + _FOOT + 0.06) - _HEAD - height
            if first:
                middle = (0.16 / size[0], (bottom + height / 2) / size[1])
                name = describe(view.modality).label if height > 1.3 else view.modality
                figure.text(*middle, name, rotation=90, ha="center", va="center", fontsize=11, color=look.ink)
            for column, panel in enumerate(panels, start=0 if first else 1):
                left = _LABEL + column * (width + _GAP)
                box = (left / size[0], bottom / size[1], width / size[0], height / size[1])
                _draw_panel(figure.add_axes(box), panel, look)
        _draw_legend(figure, look, {panel.colours for _, panels, _ in rows for panel in panels})
    return figure


def _draw_legend(figure: Figure, look: Look, shown: set[str]) -> None:
    """What colours mean, in one line at the bottom."""
    width, height = figure.get_size_inches()
    left, y, high = _LABEL, 0.12 / height, 0.13 / height
    style: dict[str, Any] = {"va": "center", "fontsize": 9.5, "color": look.faint}
    for text, colours in (("score: low to high", SCORE_COLOURS), ("weight in the token", WEIGHT_COLOURS)):
        if colours in shown:
            bar = figure.add_axes((left / width, y, 0.5 / width, high))
            bar.imshow(np.linspace(0, 1, 64)[None], aspect="auto", cmap=colours)
            bar.set_axis_off()
            figure.text((left + 0.58) / width, y + high / 2, text, **style)
            left += 2.05
    box = Rectangle((left / width, y), 0.2 / width, high, facecolor="none", edgecolor=OUTLINE)
    box.set_transform(figure.transFigure)
    figure.add_artist(box)
    figure.text((left + 0.28) / width, y + high / 2, "kept", **style)


def _draw_panel(axes: Axes, panel: Panel, look: Look) -> None:
    if panel.pixels is None:
        absent_box(axes, look, panel.title)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return
    height, width = panel.pixels.shape[:2]
    axes.imshow(panel.pixels, aspect="auto", interpolation="nearest", extent=(0, width, height, 0))
    axes.set_axis_off()
    if panel.lines:
        lines = LineCollection(panel.lines, colors=OUTLINE, linewidths=1.2, capstyle="projecting")
        lines.set_clip_on(False)
        axes.add_collection(lines)
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_title(panel.title, fontsize=10.5, loc="center", pad=4, weight="normal", color=look.ink)
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": 9, "color": look.faint}
    axes.text(0.5, -0.02, panel.caption, ha="center", va="top", **style)
