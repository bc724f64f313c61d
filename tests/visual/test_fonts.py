"""Names in other scripts: letters come from a font that has them, and are not boxes."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager
from PIL import Image, ImageDraw

from slimreid.visual import fonts
from slimreid.visual.lettering import fitted, text_width, write
from slimreid.visual.style import LIGHT, new_axes, png_bytes

FAMILY = "Noto Sans CJK SC"


def write_font(path) -> None:
    """A font whose only Chinese character is 甲, drawn as a triangle."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    pen.lineTo((900, 0))
    pen.lineTo((500, 900))
    pen.closePath()
    glyph, empty = pen.glyph(), TTGlyphPen(None).glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "jia"])
    builder.setupCharacterMap({ord("甲"): "jia"})
    builder.setupGlyf({".notdef": empty, "jia": glyph})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "jia": (1000, 100)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": FAMILY, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=900)
    builder.setupPost()
    builder.save(str(path))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The small font as the only one with Chinese characters; called with False there is none."""

    def install(wanted: bool) -> None:
        others = [font for font in fontManager.ttflist if font.name not in fonts.CJK]
        monkeypatch.setattr(fontManager, "ttflist", others)
        write_font(tmp_path / "NotoSansCJK-Regular.ttf")
        found = [str(tmp_path / "NotoSansCJK-Regular.ttf")] if wanted else []
        monkeypatch.setattr(fonts, "findSystemFonts", lambda: found)
        forget()

    yield install
    monkeypatch.undo()
    forget()


def forget() -> None:
    for function in (fonts.families, fonts._installed_cjk, fonts.pillow_font):
        function.cache_clear()
    fontManager._findfont_cached.cache_clear()


def titled(title: str) -> bytes:
    with LIGHT.drawing():
        figure, (axes,) = new_axes(LIGHT, height=1)
        axes.set_axis_off()
        axes.set_title(title)
    return png_bytes(figure)


def test_figures_fall_back_to_an_installed_font(installed, caplog):
    installed(True)
    assert fonts.families() == ("sans-serif", FAMILY)
    with caplog.at_level(logging.WARNING):
        assert titled("甲") != titled("乙"), "one is a triangle, the other a box"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        titled("run 甲")
    assert caplog.text == ""


def test_without_such_a_font_the_user_is_told(installed, caplog):
    installed(False)
    assert fonts.families() == ("sans-serif",)
    with caplog.at_level(logging.WARNING):
        titled("甲")
    assert "install Noto Sans CJK" in caplog.text


def drawn(text: str) -> np.ndarray:
    picture = Image.new("L", (60, 40), 255)
    write(ImageDraw.Draw(picture), (2, 2), text, "#000000", 24)
    return np.asarray(picture)


def test_photographs_are_labelled_in_a_font_that_has_the_letters(installed):
    installed(True)
    ink = drawn("甲") < 128
    rows = ink.sum(axis=1)[ink.any(axis=1)]
    assert len(rows) > 15
    assert (np.diff(rows) >= 0).mean() > 0.9, "the triangle grows downwards"
    assert (drawn("a") != 255).any()


def test_long_names_are_cut_in_any_script():
    for text in ("camera " * 9, "摄像机" * 12):
        short = fitted(text, 13, 90)
        assert short.endswith("…")
        assert text_width(short, 13) <= 90
