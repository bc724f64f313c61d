"""Fonts that have the letters of a text: names of people, runs and cameras may be Chinese."""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font
from PIL import ImageFont

CJK = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "SimHei",
    "Arial Unicode MS",
)
"""Common fonts with Chinese, Japanese and Korean characters, the best first."""
_CJK_FILE = re.compile(r"cjk|notosanssc|sourcehan|msyh|pingfang|hiragino|wqy|droidsansfallback|simhei", re.I)


@cache
def families() -> tuple[str, ...]:
    """Font families for matplotlib, tried in this order for each character; all of them are installed."""
    # A fallback font without a bold face is no reason to say anything.
    logging.getLogger("matplotlib.font_manager").addFilter(
        lambda record: "Failed to find font weight" not in record.getMessage()
    )
    return ("sans-serif", *_installed_cjk())


@cache
def _installed_cjk() -> tuple[str, ...]:
    known = {font.name for font in fontManager.ttflist}
    if known.isdisjoint(CJK):  # matplotlib's list is a cache; the font may be newer
        for path in findSystemFonts():
            if _CJK_FILE.search(Path(path).name):
                fontManager.addfont(path)
        known = {font.name for font in fontManager.ttflist}
    return tuple(name for name in CJK if name in known)[:2]


@cache
def pillow_font(size: int, letters: frozenset[str] = frozenset()) -> ImageFont.FreeTypeFont:
    """A font for pictures drawn with Pillow that has the given letters, or as many as any installed font."""
    if all(ord(letter) < 128 for letter in letters):
        font = ImageFont.load_default(size=size)
        assert isinstance(font, ImageFont.FreeTypeFont)
        return font
    paths = [findfont(FontProperties(family=family)) for family in ("DejaVu Sans", *_installed_cjk())]
    best = max(paths, key=lambda path: _covered(path, letters))  # the first of equals
    return ImageFont.truetype(best, size)


def _covered(path: str, letters: frozenset[str]) -> int:
    font = FT2Font(path)
    return sum(font.get_char_index(ord(letter)) != 0 for letter in letters)
