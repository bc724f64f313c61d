"""A picture of samples in all their modalities: one row per identity, one group of images per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from slimreid.errors import ConfigError
from slimreid.visual.lettering import fitted, line_height, paste_picture, text_width, write
from slimreid.visual.style import LIGHT

_PAD, _GAP, _BETWEEN = 14, 2, 12


@dataclass(frozen=True)
class ContactRow:
    """One row: samples of one identity, each a picture per modality (None or missing = absent)."""

    label: str
    cells: list[Mapping[str, Image.Image | None]]
    captions: list[str] = field(default_factory=list)
    """One line below each sample, such as its camera; empty for none."""

    def __post_init__(self) -> None:
        if self.captions and len(self.captions) != len(self.cells):
            raise ConfigError(
                f"row '{self.label}' has {len(self.cells)} samples but {len(self.captions)} captions; "
                "give one each or none"
            )


def draw_contact_sheet(
    rows: Sequence[ContactRow], modalities: Sequence[str], cell_height: int = 128
) -> Image.Image:
    """Draw the sheet: images keep their aspect and are `cell_height` pixels high.

    Raises `ConfigError` when there is nothing to draw.
    """
    if not modalities or not any(row.cells for row in rows):
        raise ConfigError("a contact sheet needs at least one modality and one sample")
    if cell_height < 8:
        raise ConfigError(f"cell_height must be at least 8 pixels, not {cell_height}")
    shapes = [i.size for row in rows for images in row.cells for i in images.values() if i is not None]
    cell = (max((max(round(w * cell_height / h), 1) for w, h in shapes), default=cell_height), cell_height)
    small, large = _letters(cell_height, 0.085), _letters(cell_height, 0.11)
    line = line_height(small)
    label = max(text_width(row.label, large) for row in rows) + _PAD
    lefts = [k * (cell[0] + _GAP) for k in range(len(modalities))]  # of the images of a sample
    group = lefts[-1] + cell[0]
    columns = max(len(row.cells) for row in rows)
    caption = line if any(any(row.captions) for row in rows) else 4
    row_height = cell_height + caption + 8
    width = _PAD + label + columns * (group + _BETWEEN) - _BETWEEN + _PAD
    sheet = Image.new("RGB", (width, _PAD + line + len(rows) * row_height + _PAD), LIGHT.paper)
    draw = ImageDraw.Draw(sheet)
    starts = [_PAD + label + k * (group + _BETWEEN) for k in range(columns)]
    for x in starts:
        for k, name in enumerate(modalities):
            left, colour = x + lefts[k], LIGHT.series[k % len(LIGHT.series)]
            text = fitted(name, small, cell[0])
            write(draw, (left + cell[0] / 2, _PAD), text, colour, small, anchor="ma")
            draw.rectangle((left, _PAD + line - 4, left + cell[0] - 1, _PAD + line - 3), colour)
    for index, row in enumerate(rows):
        y = _PAD + line + index * row_height
        write(draw, (_PAD, y + cell_height / 2), row.label, LIGHT.ink, large, anchor="lm")
        for k, (x, images) in enumerate(zip(starts, row.cells, strict=False)):
            for left, name in zip(lefts, modalities, strict=True):
                paste_picture(sheet, images.get(name), (x + left, y), cell, LIGHT)
            draw.rectangle((x - 1, y - 1, x + group, y + cell_height), outline=LIGHT.edge)
            if row.captions:
                text = fitted(row.captions[k], small, group)
                write(draw, (x + group / 2, y + cell_height + 3), text, LIGHT.faint, small, anchor="ma")
    return sheet


def _letters(height: int, share: float) -> int:
    """Size of letters beside images of a height, in pixels."""
    return min(max(round(height * share), 11), 22)
