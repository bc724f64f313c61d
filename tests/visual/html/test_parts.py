"""Pieces of pages: escaping, tables, tabs, figures that follow the theme."""

from __future__ import annotations

import re

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from slimreid.visual.html.parts import Cell, Section, Table, environment, inline_svg, plot, render
from slimreid.visual.style import DARK, LIGHT, new_axes, svg_text

HOSTILE = """<img src=x onerror=alert(1)>"'&{{ 7 * 7 }}"""


def piece(source: str, **values) -> str:
    """A line of a template with the macros at hand."""
    return environment().from_string('{% import "parts.html" as parts %}' + source).render(values)


def drawn(label: str):
    with LIGHT.drawing():
        figure, (axes,) = new_axes(LIGHT)
        axes.plot([0, 1], [0, 1], color=LIGHT.series[1], marker="o", label=label)
        axes.legend()
    return figure


def test_names_from_users_are_text():
    table = Table(["run", HOSTILE], [[HOSTILE, Cell(HOSTILE, HOSTILE)]], HOSTILE)
    found = Markup(piece("{{ parts.table(table) }}", table=table))
    found += Markup(
        piece('{% call(x) parts.tabs("t", {name: name, 2: name}) %}{{ x }}{% endcall %}', name=HOSTILE)
    )
    found += render("report.html", title=HOSTILE, lead=HOSTILE, sections=[], footer=HOSTILE)
    found += plot(drawn(HOSTILE), HOSTILE, HOSTILE).svg
    assert "<img" not in found
    assert "49" not in re.sub(r"[\d.]{4,}", "", found.partition("<style>")[0])
    assert found.count("&lt;img src=x") > 8
    assert "{{ 7 * 7 }}" in found, "shown, not computed"


def test_a_template_that_lacks_a_value_is_an_error():
    with pytest.raises(UndefinedError):
        render("report.html", title="t")


def test_cells_have_notes_and_are_bold_on_request():
    row = ["a", Cell("2", "(of 3)", strong=True), Cell("1"), "0"]
    found = piece("{{ parts.table(table) }}", table=Table(list("abcd"), [row]))
    assert re.findall(r"<td>(.*?)</td>", found) == ["<strong>2</strong> <small>(of 3)</small>", "1", "0"]


def test_figures_take_their_colours_from_the_page():
    found = plot(drawn("run"), "a figure").svg
    assert "var(--series-1)" in found or "var(--wrong)" in found
    assert "var(--paper)" in found
    assert not set(LIGHT.colours().values()) & set(re.findall(r"#[0-9a-f]{6}\b", found))
    assert set(LIGHT.colours()) == set(DARK.colours())


def test_colours_that_are_one_by_day_are_one_by_night():
    """A figure knows a colour only by its value in the light look."""
    pairs = {(LIGHT.colours()[name], DARK.colours()[name]) for name in LIGHT.colours()}
    assert len({light for light, _ in pairs}) == len(pairs)


def test_ids_of_figures_differ_and_lead_somewhere():
    figures = [plot(drawn(name), "a figure").svg for name in ("one", "two")]
    ids = [set(re.findall(r'\bid="([^"]+)"', found)) for found in figures]
    assert not ids[0] & ids[1]
    for found, known in zip(figures, ids, strict=True):
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', found))
        assert used
        assert used <= known
    assert "<style" not in figures[0]


def test_labels_that_look_like_code_stay_as_they_are():
    label = 'id="x" #ffffff url(#a)'
    assert label in inline_svg(svg_text(drawn(label)), "a figure")


@pytest.mark.browser
def test_tabs_by_keyboard_and_on_paper(browser_page, tmp_path):
    source = "{% call(text) parts.tabs(key, pieces) %}<p>{{ key }} {{ text }}</p>{% endcall %}"
    body = piece(source, key="left", pieces={"one": "first", "two": "second"})
    body += piece(source, key="right", pieces={"two": "second", "three": "third"})
    section = Section("s", "Section", "S", Markup(body))
    path = tmp_path / "page.html"
    text = render("report.html", title="A <title>", lead="lead", sections=[section], footer="end")
    path.write_text(text, encoding="utf-8")
    page, complaints = browser_page
    page.goto(path.as_uri())
    shown = lambda text: page.get_by_text(text, exact=True).is_visible()  # noqa: E731
    assert shown("left first")
    assert not shown("left second")
    page.get_by_role("tab", name="one").focus()
    page.keyboard.press("ArrowRight")
    assert shown("left second")
    assert shown("right second"), "the same run everywhere"
    page.keyboard.press("Home")
    assert shown("left first")
    assert shown("right second"), "where a run is not there, nothing changes"
    page.emulate_media(media="print")
    for words in ("left first", "left second", "right second", "right third"):
        assert shown(words)
    assert complaints == []
