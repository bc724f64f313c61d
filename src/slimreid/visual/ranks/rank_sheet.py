"""Rank lists as a picture: the query to the left, what it found to the right, modalities one below the other.

Correct matches have a solid frame and a tick, wrong ones a dashed frame and a cross, besides their colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from slimreid.data.images.decode import read_pictures
from slimreid.data.manifest import ImageRef
from slimreid.errors import ConfigError
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.search import Answer
from slimreid.visual.datasets.contact_sheet import ContactRow
from slimreid.visual.datasets.views import save_sheet
from slimreid.visual.lettering import fitted, line_height, paste_picture, text_width, write
from slimreid.visual.ranks.rank_lists import Pictures, RankList
from slimreid.visual.style import LIGHT, Look

PAD, FRAME, INNER, BETWEEN, SPLIT = 16, 4, 3, 10, 18
"""Pixels: around everything, of a frame, between a frame and its pictures, between items, query and items."""
_DASH = (9, 6)


@dataclass(frozen=True)
class Geometry:
    """Where everything of a sheet is, in pixels."""

    cell: tuple[int, int]
    """Width and height of one picture."""
    modalities: int
    columns: int
    """Items per list."""
    label: int
    """Width of the names of the modalities."""
    line: int
    """Height of a line of text."""
    above: int = 2
    """Lines above the items: the title, if there is one, and the ranks."""

    @property
    def box(self) -> tuple[int, int]:
        """Width and height of an item with its frame."""
        edge = 2 * (FRAME + INNER)
        return self.cell[0] + edge, self.modalities * (self.cell[1] + INNER) - INNER + edge

    @property
    def block(self) -> int:
        """Height of a whole list: title, ranks, item, score, camera."""
        return (self.above + 2) * self.line + self.box[1] + PAD

    @property
    def size(self) -> tuple[int, int]:
        """Width of the sheet and height of one list."""
        width = 2 * PAD + self.label + self.box[0]
        if self.columns:
            width += SPLIT + self.columns * (self.box[0] + BETWEEN) - BETWEEN
        return width, self.block

    def left(self, column: int) -> int:
        """Left edge of the query (column −1) or of an item."""
        start = PAD + self.label
        return start if column < 0 else start + self.box[0] + SPLIT + column * (self.box[0] + BETWEEN)

    def top(self, number: int) -> int:
        """Upper edge of the items of the n-th list."""
        return PAD + number * self.block + self.above * self.line


def sheet_geometry(lists: Sequence[RankList], modalities: Sequence[str], cell_height: int) -> Geometry:
    """The geometry of a sheet; raises `ConfigError` when there is nothing to draw."""
    if not lists or not modalities:
        raise ConfigError("a rank list needs at least one query and one modality")
    if cell_height < 16:
        raise ConfigError(f"cell_height must be at least 16 pixels, not {cell_height}")
    sides = [side for found in lists for side in (found.query, *(item.pictures for item in found.items))]
    shapes = [p.size for side in sides for p in side.values() if p is not None]
    width = max((round(w * cell_height / h) for w, h in shapes), default=cell_height)
    size = _letters(cell_height)
    label = max(text_width(name, size) for name in modalities) + 8
    columns = max(len(found.items) for found in lists)
    # Captions such as "camera 12" must fit under a narrow picture.
    width = max(width, text_width("0.000", size) + 2, 24)
    above = 2 if any(found.title for found in lists) else 1
    return Geometry((width, cell_height), len(modalities), columns, label, line_height(size), above)


def draw_rank_lists(
    lists: Sequence[RankList], modalities: Sequence[str], look: Look = LIGHT, *, cell_height: int = 128
) -> Image.Image:
    """Draw rank lists one below the other; pictures are `cell_height` pixels high.

    Below each item its score and its camera; an absent modality is a hatched, labelled box. Raises
    `ConfigError` when there is nothing to draw.
    """
    plan = sheet_geometry(lists, modalities, cell_height)
    width, height = plan.size
    large = _letters(cell_height, 1.1)
    titles = [text_width(found.title, large) + 2 * PAD for found in lists]
    sheet = Image.new("RGB", (max(width, *titles), 2 * PAD + len(lists) * height - PAD), look.paper)
    draw = ImageDraw.Draw(sheet)
    for number, found in enumerate(lists):
        top = plan.top(number)
        write(draw, (PAD, top - plan.above * plan.line), found.title, look.ink, large)
        for k, name in enumerate(modalities):
            y = top + FRAME + INNER + k * (plan.cell[1] + INNER) + plan.cell[1] / 2
            write(draw, (PAD, y), name, look.faint, _letters(cell_height), anchor="lm")
        corner = (plan.left(-1), top)
        _item(sheet, plan, corner, found.query, modalities, look, None)
        camera = f"cam {found.query_camera}" if found.query_camera else ""
        _captions(draw, plan, corner, ("query", "", camera), look)
        digits = score_digits([item.score for item in found.items])
        for rank, item in enumerate(found.items):
            corner = (plan.left(rank), top)
            _item(sheet, plan, corner, item.pictures, modalities, look, item.is_match)
            texts = (str(rank + 1), f"{item.score:.{digits}f}", item.label or f"cam {item.camera}")
            _captions(draw, plan, corner, texts, look)
    return sheet


def _item(
    sheet: Image.Image,
    plan: Geometry,
    corner: tuple[int, int],
    pictures: Pictures,
    modalities: Sequence[str],
    look: Look,
    is_match: bool | None,
) -> None:
    """One framed column of pictures; `is_match` is None for the query, and where nobody knows."""
    draw = ImageDraw.Draw(sheet)
    (x, y), height = corner, plan.cell[1]
    for k, name in enumerate(modalities):
        place = (x + FRAME + INNER, y + FRAME + INNER + k * (height + INNER))
        letters = _letters(height, 0.9)
        paste_picture(sheet, pictures.get(name), place, plan.cell, look, f"no {name}", letters)
    box = (x, y, x + plan.box[0] - 1, y + plan.box[1] - 1)
    if is_match is None:
        draw.rectangle(box, outline=look.ink, width=2)
        return
    if is_match:
        draw.rectangle(box, outline=look.right, width=FRAME)
    else:
        _dashed(draw, box, look.wrong)
    _badge(sheet, (box[2] - FRAME // 2, y + FRAME // 2), is_match, look)


def _captions(
    draw: ImageDraw.ImageDraw,
    plan: Geometry,
    corner: tuple[int, int],
    texts: tuple[str, str, str],
    look: Look,
) -> None:
    """Above the item its rank, below it score and camera."""
    above, first, second = texts
    size = _letters(plan.cell[1])
    room = plan.box[0] + BETWEEN - 2
    middle, bottom = corner[0] + plan.box[0] / 2, corner[1] + plan.box[1]
    write(draw, (middle, corner[1] - 4), above, look.ink, size, anchor="ms")
    write(draw, (middle, bottom + 3), first, look.ink, size, anchor="ma")
    below = fitted(second, size, room)
    write(draw, (middle, bottom + 3 + plan.line), below, look.faint, size, anchor="ma")


def score_digits(scores: Sequence[float]) -> int:
    """Decimals by which scores of one list are told apart, two to four."""
    spread = max(scores, default=1.0) - min(scores, default=0.0)
    return 2 if spread >= 0.05 else 3 if spread >= 0.005 else 4


def _dashed(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], colour: str) -> None:
    left, top, right, bottom = box
    for x, end in _dashes(left, right):
        draw.rectangle((x, top, end, top + FRAME - 1), colour)
        draw.rectangle((x, bottom - FRAME + 1, end, bottom), colour)
    for y, end in _dashes(top, bottom):
        draw.rectangle((left, y, left + FRAME - 1, end), colour)
        draw.rectangle((right - FRAME + 1, y, right, end), colour)


def _dashes(start: int, end: int) -> list[tuple[int, int]]:
    """First and last pixel of each dash from `start` to `end`, with a whole dash in both corners."""
    dash, gap = _DASH
    count = max(2, round((end - start + 1 + gap) / (dash + gap)))
    step = (end - start + 1 - dash) / (count - 1)
    places = [start + round(k * step) for k in range(count)]
    return [(place, min(place + dash - 1, end)) for place in places]


def _badge(sheet: Image.Image, centre: tuple[int, int], is_match: bool, look: Look) -> None:
    """A disc with a tick, or a square with a cross, drawn large and shrunk so that its edges are smooth."""
    radius = 10
    n = 8 * radius
    badge = Image.new("RGBA", (n, n), (0, 0, 0, 0))
    draw = ImageDraw.Draw(badge)
    edge = radius // 2 + 2
    if is_match:
        draw.ellipse((0, 0, n - 1, n - 1), look.right, look.paper, edge)
        strokes = [[(0.26, 0.53), (0.43, 0.70), (0.75, 0.33)]]
    else:
        inset = radius // 2
        draw.rectangle((inset, inset, n - 1 - inset, n - 1 - inset), look.wrong, look.paper, edge)
        strokes = [[(0.30, 0.30), (0.70, 0.70)], [(0.70, 0.30), (0.30, 0.70)]]
    for stroke in strokes:
        draw.line([(x * n, y * n) for x, y in stroke], look.paper, n // 9, joint="curve")
    small = badge.resize((2 * radius, 2 * radius), Image.Resampling.LANCZOS)
    x = min(centre[0] - radius, sheet.width - 2 * radius)
    sheet.paste(small, (x, centre[1] - radius), small)


def _letters(height: int, share: float = 1.0) -> int:
    """Size of letters beside images of a height, in pixels."""
    return round(share * min(max(height * 0.13, 13), 20))


def draw_answers(answers: Sequence[Answer], loaded: LoadedModel, path: Path) -> None:
    """A row per query: itself, then what was found."""
    windows = loaded.config.data.windows or {}

    def pictures(paths: dict[str, Path]) -> Pictures:
        images = {name: ImageRef(path.as_posix()) for name, path in paths.items()}
        return read_pictures(images, Path("/"), windows)

    rows = []
    for answer in answers:
        cells = [pictures(paths) for paths in [answer.query, *(hit.paths for hit in answer.hits)]]
        captions = ["query", *(f"{h.rank} · {h.similarity:.3f} {h.identity}".strip() for h in answer.hits)]
        rows.append(ContactRow(next(iter(answer.query.values())).stem, cells, captions))
    used = {name for row in rows for cell in row.cells for name in cell}
    save_sheet(rows, [m for m in loaded.modalities if m in used], path, title="search")
