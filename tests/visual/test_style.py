"""The common look: what every figure shares."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from slimreid.errors import ConfigError
from slimreid.visual.style import DARK, LIGHT, LOOKS, line_style, new_axes, png_bytes, save_picture, svg_text


def drawn(look=LIGHT):
    with look.drawing():
        figure, (axes,) = new_axes(look)
        axes.plot([0, 1], [0, 1], label="a line", **line_style(look, 0))
        axes.set_xlabel("thirteen & more")
        axes.legend()
    return figure


def test_svg_keeps_text_as_text_and_is_the_same_every_time():
    text = svg_text(drawn())
    assert text == svg_text(drawn())
    tree = ElementTree.fromstring(text)
    words = {node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a line", "thirteen & more"} <= words
    assert "date" not in text.lower()
    assert not re.search(r"(href|src)=\"(?!#)", text), "nothing from outside"


def test_letters_are_large_enough_for_a_phone():
    figure = drawn()
    width = figure.get_size_inches()[0] * 72
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ?(?:\w+ )?([\d.]+)px", svg_text(figure))]
    assert sizes
    assert min(sizes) * 360 / width >= 10, "at least ten pixels on a screen of 360"


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_png_has_the_paper_of_the_look(look):
    picture = Image.open(io.BytesIO(png_bytes(drawn(look)))).convert("RGB")
    assert picture.getpixel((1, 1)) == tuple(round(255 * c) for c in to_rgb(look.paper))


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_ink_and_lines_stand_out_from_the_paper(look):
    assert contrast(look.ink, look.paper) >= 7
    assert contrast(look.faint, look.paper) >= 4.5
    for colour in (look.right, look.wrong, look.accent, *look.series):
        assert contrast(colour, look.paper) >= 3, colour


def test_lines_differ_in_more_than_colour():
    shapes = {(str(s["linestyle"]), s["marker"]) for s in (line_style(LIGHT, n, 5) for n in range(6))}
    assert len(shapes) == 6
    assert "marker" not in line_style(LIGHT, 0, 500), "many points need no markers"


def test_drawing_leaves_the_settings_of_others_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    svg_text(drawn(DARK))
    assert dict(matplotlib.rcParams) == before


def test_pictures_are_written_by_suffix(tmp_path):
    save_picture(drawn(), tmp_path / "deep" / "a.svg")
    assert (tmp_path / "deep" / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    save_picture(drawn(), tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").format == "PNG"
    with pytest.raises(ConfigError, match=r"as \.png or \.svg, not as '\.gif'"):
        save_picture(drawn(), tmp_path / "a.gif")
    with pytest.raises(ConfigError, match=r"as \.png, not as '\.svg'"):
        save_picture(Image.new("RGB", (4, 4)), tmp_path / "b.svg")
    assert not (tmp_path / "b.svg").exists()
