"""What pages are made of: sections, tables, figures that follow the theme, photographs, and their templates.

Values are escaped, and nothing comes from outside the file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from slimreid import __version__
from slimreid.visual.style import DARK, LIGHT, svg_text

_PHOTO_QUALITY = 82
_VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.colours().items()}
"""Colour of a figure -> the variable of the style sheet that has it."""


@cache
def environment() -> Environment:
    """The templates, with the colours of both looks; a value that is missing is an error."""
    environment = Environment(
        loader=PackageLoader("slimreid.visual"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"version": __version__, "light": LIGHT.colours(), "dark": DARK.colours()}
    return environment


def render(template: str, **values: Any) -> Markup:
    """A template of `slimreid/visual/templates` with its values filled in."""
    return Markup(environment().get_template(template).render(values))


@dataclass(frozen=True)
class Section:
    """A part of the page that the navigation leads to."""

    key: str
    """Anchor, also the last part of its address."""
    title: str
    short: str
    """Name in the navigation."""
    body: Markup


def section(key: str, title: str, short: str, **values: Any) -> Section:
    """A part of the page from the template of its name."""
    return Section(key, title, short, render(f"sections/{key}.html", **values))


@dataclass(frozen=True)
class Cell:
    """A cell of a table with more than text."""

    text: str
    note: str = ""
    """Smaller, behind the text."""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first column heads its rows; it scrolls in itself where it is too wide."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure for the page."""

    svg: Markup
    caption: str = ""


def plot(figure: Figure, alt: str, caption: str = "") -> Plot:
    """A figure drawn in `LIGHT` whose colours follow the theme of the page; `alt` says what it shows."""
    return Plot(inline_svg(svg_text(figure), alt), caption)


def inline_svg(text: str, alt: str) -> Markup:
    """An <svg> of matplotlib as a part of a page: themed colours, and ids that no other figure has."""
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None, "matplotlib writes a viewBox"
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)  # it would hold for the whole page
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    body = re.sub(r"<[^>]+>", lambda tag: _themed(tag[0], key), body)  # tags only, never the text of labels
    return Markup(f'<svg {box[0]} role="img" aria-label="{escape(alt)}">{body}')


def _themed(tag: str, key: str) -> str:
    tag = re.sub(r'\bid="', f'id="{key}-', tag)
    tag = re.sub(r'(href="|url\()#', rf"\1#{key}-", tag)
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), tag)


@dataclass(frozen=True)
class Photo:
    """A photograph for the page, with its size, so that nothing moves while it is loaded."""

    source: str
    """A data address."""
    width: int
    height: int


def photo(image: Image.Image, height: int) -> Photo:
    """An image in WebP, made smaller to a height in pixels where it is larger."""
    shown = image.convert("RGB")
    if shown.height > height:
        size = (max(1, round(shown.width * height / shown.height)), height)
        shown = shown.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shown.save(buffer, "WEBP", quality=_PHOTO_QUALITY, method=2)
    source = f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Photo(source, *shown.size)
