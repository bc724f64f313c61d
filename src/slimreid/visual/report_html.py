"""Pieces of an HTML page without outside files: tables, figures in light and dark, tabs.

Text that comes in is escaped here; what is already HTML is of type `Html`.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

from matplotlib.figure import Figure
from PIL import Image

from slimreid import __version__
from slimreid.visual.style import DARK, LIGHT, Look, svg_text

_PHOTO_QUALITY = 82


class Html(str):
    """Text that is HTML already."""


@dataclass(frozen=True)
class Section:
    """A part of the page that the navigation leads to."""

    key: str
    """Anchor, also the last part of its address."""
    title: str
    short: str
    """Name in the navigation."""
    body: Html


def escape(value: object) -> Html:
    """Any value as HTML text; `Html` stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def join(*parts: object) -> Html:
    """Several pieces, one after the other."""
    return Html("\n".join(escape(part) for part in parts if part != ""))


def element(name: str, *content: object, **attributes: str) -> Html:
    """An element; `class_` stands for `class`, and underscores become hyphens."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(escape(part) for part in content)}</{name}>")


def paragraph(*content: object, **attributes: str) -> Html:
    """A paragraph."""
    return element("p", *content, **attributes)


def table(
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: object = "",
    *,
    best: Mapping[int, Callable[[Sequence[float]], float]] | None = None,
    values: Mapping[int, Sequence[float]] | None = None,
) -> Html:
    """A table whose first column heads its rows; it scrolls in itself where it is too wide.

    `best` names columns whose best cell is set in bold: `values` has their numbers, one per row.
    """
    given = [list(row) for row in rows]
    bold = set()
    for column, choose in (best or {}).items():
        numbers = list((values or {})[column])
        if len(numbers) > 1:
            bold |= {(r, column) for r, number in enumerate(numbers) if number == choose(numbers)}
    head = "".join(element("th", cell, scope="col") for cell in columns)
    lines = []
    for r, row in enumerate(given):
        cells = [element("th", row[0], scope="row")]
        for c, cell in enumerate(row[1:], start=1):
            cells.append(element("td", cell, **({"class_": "best"} if (r, c) in bold else {})))
        lines.append(element("tr", *cells))
    body = element("table", element("thead", element("tr", Html(head))), element("tbody", *lines))
    # The caption stands outside of what scrolls, so that it is read whole on a phone.
    above = element("figcaption", caption) if caption else Html("")
    return element("figure", above, _scrolling(body, caption or columns[0]), class_="table")


def facts(rows: Iterable[tuple[object, object]]) -> Html:
    """Names and values, one below the other."""
    lines = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows]
    return element("table", element("tbody", *lines), class_="facts")


def tiles(figures: Iterable[tuple[str, str]]) -> Html:
    """Large numbers, each with what it is."""
    return element(
        "ul",
        *(element("li", element("b", value), element("span", name)) for name, value in figures),
        class_="tiles",
    )


def _scrolling(content: Html, label: object) -> Html:
    """A region that scrolls sideways in itself, by keyboard too."""
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=str(label))


def plot(draw: Callable[[Look], Figure], alt: str, caption: object = "") -> Html:
    """A figure drawn twice, for light and for dark pages; the page shows the one that suits."""
    images = []
    for look, kind in ((LIGHT, "by-day"), (DARK, "by-night")):
        figure = draw(look)
        source = _data(svg_text(figure).encode(), "image/svg+xml")
        # With its shape known, the page does not move under the reader as pictures are loaded.
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        size = f'width="{width}" height="{height}"'
        images.append(f'<img class="{kind}" {size} loading="lazy" alt="{html.escape(alt)}" src="{source}">')
    below = element("figcaption", caption) if caption else Html("")
    return element("figure", Html("".join(images)), below, class_="plot")


def photo(draw: Callable[[Look], Image.Image], alt: str, caption: object = "") -> Html:
    """A picture of photographs, drawn for light and dark pages as WebP.

    It is shown at its size, and scrolls in itself where it is wider than the page; the caption is above.
    """
    images = []
    for look, kind in ((LIGHT, "by-day"), (DARK, "by-night")):
        image = draw(look)
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "WEBP", quality=_PHOTO_QUALITY, method=4)
        source = _data(buffer.getvalue(), "image/webp")
        size = f'width="{image.width}" height="{image.height}"'
        images.append(f'<img class="{kind}" {size} loading="lazy" alt="{html.escape(alt)}" src="{source}">')
    above = element("figcaption", caption) if caption else Html("")
    return element("figure", above, _scrolling(Html("".join(images)), alt), class_="photo")


def _data(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def side_by_side(parts: Mapping[str, Html]) -> Html:
    """One piece per run, beside each other where there is room; without headings if there is one only."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    cells = [element("div", element("h3", name), part) for name, part in parts.items()]
    return element("div", *cells, class_="side")


def tabs(key: str, parts: Mapping[str, Html]) -> Html:
    """One piece per run behind tabs; without scripts, and on paper, one below the other."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    buttons, panels = [], []
    for k, (name, part) in enumerate(parts.items()):
        tab, panel = f"{key}-tab-{k}", f"{key}-panel-{k}"
        buttons.append(
            element(
                "button", name, type="button", role="tab", id=tab, aria_controls=panel, aria_selected="false"
            )
        )
        panels.append(
            element("div", element("h3", name), part, role="tabpanel", id=panel, aria_labelledby=tab)
        )
    row = element("div", *buttons, role="tablist", aria_label="Runs")
    return element("div", row, *panels, class_="tabs")


def folded(summary: object, content: object) -> Html:
    """Something to open on demand."""
    return element("details", element("summary", summary), escape(content))


def page(title: str, sections: Sequence[Section], lead: object, footer: object) -> str:
    """The whole page; nothing in it comes from outside."""
    navigation = "".join(
        element("li", element("a", section.short, href=f"#{section.key}")) for section in sections
    )
    body = [escape(lead)]
    for section in sections:
        heading = element("h2", section.title, id=f"{section.key}-title")
        body.append(
            element("section", heading, section.body, id=section.key, aria_labelledby=f"{section.key}-title")
        )
    return Template(_template("report.html")).substitute(
        title=html.escape(title),
        version=__version__,
        style=_template("report.css").strip(),
        script=_template("report.js").strip(),
        navigation=navigation,
        body="\n".join(body),
        footer=escape(footer),
    )


@cache
def _template(name: str) -> str:
    return (files("slimreid.visual") / "templates" / name).read_text(encoding="utf-8")
