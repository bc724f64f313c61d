"""Text and hatched boxes in pictures drawn with Pillow."""

from __future__ import annotations

from PIL import Image, ImageDraw

from slimreid.visual.fonts import pillow_font
from slimreid.visual.style import Look

_HATCH = 10
"""Pixels between the lines of a hatched box."""


def line_height(size: int) -> int:
    """Pixels from one line of text to the next."""
    return round(1.45 * size)


def text_width(text: str, size: int) -> int:
    """Width of a text in pixels."""
    left, _, right, _ = pillow_font(size, frozenset(text)).getbbox(text or " ")
    return round(right - left)


def fitted(text: str, size: int, width: int) -> str:
    """`text`, cut with an ellipsis where it is wider than `width` pixels."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"


def write(
    draw: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    colour: str,
    size: int,
    anchor: str = "la",
) -> None:
    """Draw a line of text in a font that has its letters; `anchor` as Pillow's."""
    draw.text(place, text, colour, pillow_font(size, frozenset(text)), anchor=anchor)


def paste_picture(
    sheet: Image.Image,
    picture: Image.Image | None,
    corner: tuple[int, int],
    cell: tuple[int, int],
    look: Look,
    absent: str = "",
    size: int = 12,
) -> None:
    """Put a picture into a cell (width, height) of a sheet, centred; where it is None, a labelled box."""
    if picture is None:
        sheet.paste(hatched_box(cell, look, absent, size), corner)
        return
    (x, y), (width, height) = corner, cell
    shape = (min(width, max(1, round(picture.width * height / picture.height))), height)
    scaled = picture.convert("RGB").resize(shape, Image.Resampling.BICUBIC)
    sheet.paste(scaled, (x + (width - scaled.width) // 2, y))


def hatched_box(cell: tuple[int, int], look: Look, text: str, size: int) -> Image.Image:
    """A box with slanted lines for an image that does not exist, with a label in the middle."""
    width, height = cell
    box = Image.new("RGB", cell, look.paper)
    draw = ImageDraw.Draw(box)
    for offset in range(-height, width, _HATCH):
        draw.line((offset, height, offset + height, 0), fill=look.edge, width=2)
    draw.rectangle((0, 0, width - 1, height - 1), outline=look.edge, width=2)
    if text:
        x, y, half = width / 2, height / 2, text_width(text, size) / 2 + 3
        draw.rectangle((x - half, y - 0.75 * size, x + half, y + 0.75 * size), look.paper)
        write(draw, (x, y), text, look.faint, size, anchor="mm")
    return box
