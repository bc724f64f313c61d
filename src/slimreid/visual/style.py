"""One look for figures and pages, in a light and a dark variant, and how pictures become files.

Figures are about as wide as a phone shows them, so their text stays readable there. Colours are those of
Okabe and Ito, which people with colour blindness can tell apart; lines differ in dashes and markers too.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from slimreid.errors import ConfigError
from slimreid.files import atomic_write, write_text
from slimreid.visual.fonts import families

logger = logging.getLogger(__name__)

WIDTH = 5.2
"""Inches: at 12-point letters, a phone of 360 pixels shows them at about 12 pixels."""
DPI = 160
HEAT = "viridis"
"""Colour map of heat maps; its numbers are readable on light and on dark pages."""
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (4, 1, 1, 1, 1, 1)))
_NO_GLYPH = r"Glyph .* missing from"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


@dataclass(frozen=True)
class Look:
    """Colours of one variant, as hexadecimal RGB."""

    name: str
    paper: str
    """Background."""
    card: str
    """Background of buttons, tiles and code."""
    ink: str
    faint: str
    """Captions and ticks."""
    edge: str
    """Frames, grid lines and the hatching of what is absent."""
    right: str
    wrong: str
    accent: str
    """What the eye should find first, such as the chosen epoch."""
    note: str
    """Background of warnings."""
    series: tuple[str, ...]
    """One per run or loss."""

    def colours(self) -> dict[str, str]:
        """Name of each colour, as the style sheet calls it -> its value."""
        plain = {key: value for key, value in vars(self).items() if key not in ("name", "series")}
        return plain | {f"series-{k}": colour for k, colour in enumerate(self.series)}

    def drawing(self) -> AbstractContextManager[None]:
        """Settings under which figures of this look are drawn and written."""
        return matplotlib.rc_context(
            {
                "figure.facecolor": self.paper,
                "savefig.facecolor": self.paper,
                "axes.facecolor": self.paper,
                "axes.edgecolor": self.faint,
                "axes.labelcolor": self.ink,
                "axes.titlecolor": self.ink,
                "axes.titlesize": 12,
                "axes.titleweight": "bold",
                "axes.titlelocation": "left",
                "axes.labelsize": 12,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.color": self.edge,
                "grid.linewidth": 0.7,
                "text.color": self.ink,
                "text.parse_math": False,  # names may have dollar signs
                "xtick.color": self.faint,
                "ytick.color": self.faint,
                "xtick.labelcolor": self.ink,
                "ytick.labelcolor": self.ink,
                "xtick.labelsize": 11,
                "ytick.labelsize": 11,
                "legend.fontsize": 11,
                "legend.frameon": False,
                "lines.linewidth": 2.0,
                "lines.markersize": 5.5,
                "hatch.linewidth": 1.5,
                "font.size": 11,
                "font.family": list(families()),
                # Verdana has the same widths, so labels fit where DejaVu is not installed.
                "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
                "svg.fonttype": "none",
                "svg.hashsalt": "slimreid",
            }
        )


LIGHT = Look(
    name="light",
    paper="#ffffff",
    card="#f6f7f8",
    ink="#202226",
    faint="#626770",
    edge="#d6d8da",
    right="#0072b2",
    wrong="#d55e00",
    accent="#b34d00",
    note="#fff4e5",
    series=("#0072b2", "#d55e00", "#009e73", "#b0568c", "#8a6d00", "#4b4f57"),
)
DARK = Look(
    name="dark",
    paper="#15181d",
    card="#1d2127",
    ink="#eceef1",
    faint="#a4abb5",
    edge="#363c45",
    right="#56b4e9",
    wrong="#ff9a4d",
    accent="#ffb86b",
    note="#3a2b17",
    series=("#56b4e9", "#ff9a4d", "#3ccf9f", "#e79ac5", "#e6cf4a", "#b9bec7"),
)
LOOKS: dict[str, Look] = {look.name: look for look in (LIGHT, DARK)}


def new_axes(
    look: Look, rows: int = 1, columns: int = 1, *, width: float = WIDTH, height: float = 3.5
) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, row by row; `width` and `height` in inches.

    Must be called under `look.drawing()`. It is not registered with pyplot, so there is nothing to close.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def line_style(look: Look, number: int, points: int = 0) -> dict[str, Any]:
    """Colour, dashes and, for few points, marker of the n-th line, so that colour is never alone."""
    style: dict[str, Any] = {
        "color": look.series[number % len(look.series)],
        "linestyle": _DASHES[number % len(_DASHES)],
    }
    if 0 < points <= 40:
        style["marker"] = marker(number)
    return style


def marker(number: int) -> str:
    """The n-th marker; they repeat after ten."""
    return _MARKERS[number % len(_MARKERS)]


def legend_name(name: str) -> str:
    """A name as a label that the legend shows; matplotlib leaves out those that begin with an underscore."""
    return f"\u2060{name}" if name.startswith("_") else name


def absent_box(axes: Axes, look: Look, text: str) -> None:
    """Fill axes with a hatched, labelled box: what should be here does not exist."""
    axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    axes.grid(False)
    box = Rectangle((0, 0), 1, 1, facecolor=look.paper, edgecolor=look.edge, hatch="//", linewidth=2)
    axes.add_patch(box)
    label = {"facecolor": look.paper, "edgecolor": "none", "pad": 2.0}
    axes.text(0.5, 0.5, text, color=look.faint, ha="center", va="center", bbox=label, fontsize=10)


def check_names(given: Sequence[str], what: str) -> None:
    """Raise `ConfigError` when there is nothing to draw."""
    if not given:
        raise ConfigError(f"{what}: nothing to draw; give at least one run")


def svg_text(figure: Figure) -> str:
    """A figure as an <svg> element with its text as text; the same figure gives the same bytes."""
    buffer = io.StringIO()
    settings = matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "slimreid"})
    with settings, warnings.catch_warnings():
        warnings.filterwarnings("ignore", _NO_GLYPH)  # whoever shows the file has more fonts
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    return text.strip() + "\n"


def png_bytes(picture: Figure | Image.Image, dpi: int = DPI) -> bytes:
    """A figure or an image as PNG."""
    buffer = io.BytesIO()
    if isinstance(picture, Figure):
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("default", _NO_GLYPH)
            picture.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        if any(re.match(_NO_GLYPH, str(warning.message)) for warning in caught):
            logger.warning("no installed font has all letters of this picture; install Noto Sans CJK")
    else:
        picture.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def save_picture(picture: Figure | Image.Image, path: Path) -> None:
    """Write a picture atomically as .png, or a figure as .svg; raises `ConfigError` for other names."""
    suffix = path.suffix.lower()
    if suffix == ".svg" and isinstance(picture, Figure):
        write_text(path, svg_text(picture))
    elif suffix == ".png":
        content = png_bytes(picture)
        with atomic_write(path) as file:
            file.write(content)
    else:
        kinds = ".png or .svg" if isinstance(picture, Figure) else ".png"
        raise ConfigError(f"{path}: this picture can be written as {kinds}, not as '{suffix}'")
