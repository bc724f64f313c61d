"""The manifest: one CSV table that describes any dataset.

| column                 | content                                                                     |
|------------------------|-----------------------------------------------------------------------------|
| `split`                | `train`, `query`, `gallery` or `val` (`val` is query and gallery at once)    |
| `identity`             | who or what it is, any text                                                  |
| `camera`, `scene`      | where it was seen, any text; `scene` may be empty or left out                |
| `rgb`, `nir`, ...      | path of the image, relative to the manifest's folder; empty = missing        |
| `rgb_box`, ...         | optional `left top right bottom` in pixels, for images that share one file   |
| `rgb_window`, ...      | optional `low high` for 16-bit images, the values that become black and white |
| `protocol`             | optional, the same in every row: `camera` (default), `scene` or `none`       |
| `origin`               | optional, the same in every row: what the pixels are, e.g. if simulated      |
| `x_...`                | anything else you want to keep; carried along, never read                    |

Row numbers in messages are those of a spreadsheet: the header is row 1.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from slimreid.errors import DataError
from slimreid.files import write_text
from slimreid.modalities import MODALITIES, declare, find_modality, order

Split = Literal["train", "val", "query", "gallery"]
Protocol = Literal["camera", "scene", "none"]
Box = tuple[int, int, int, int]
Window = tuple[float, float]

SPLITS: tuple[Split, ...] = get_args(Split)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
MANIFEST_NAME = "manifest.csv"

_REQUIRED = ("split", "identity", "camera")
_PLAIN = (*_REQUIRED, "scene", "protocol", "origin")


@dataclass(frozen=True)
class ImageRef:
    """Where one image is: a file, and optionally the part of it and the range of values that count."""

    path: str
    box: Box | None = None
    window: Window | None = None


@dataclass(frozen=True)
class Sample:
    """One row: an object seen once, in one or more modalities."""

    split: Split
    identity: str
    camera: str
    scene: str
    images: Mapping[str, ImageRef]
    extras: Mapping[str, str] = field(default_factory=dict)
    row: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Problem:
    """Something wrong with a dataset: where, what, and how to mend it."""

    level: Literal["error", "warning"]
    row: int | None
    message: str
    cure: str

    def __str__(self) -> str:
        where = f"row {self.row}: " if self.row else ""
        return f"{where}{self.message}; {self.cure}"


@dataclass(frozen=True)
class Manifest:
    """A whole dataset: its rows, the modalities they may have, and the folder paths start from."""

    samples: tuple[Sample, ...]
    modalities: tuple[str, ...]
    root: Path = field(compare=False)
    protocol: Protocol = "camera"
    origin: str = ""

    def select(self, *splits: Split) -> tuple[Sample, ...]:
        """Rows of the given splits, in order."""
        return tuple(s for s in self.samples if s.split in splits)

    def file(self, image: ImageRef) -> Path:
        """The file behind an image."""
        return self.root / image.path

    def with_samples(self, samples: Iterable[Sample]) -> Manifest:
        """The same dataset with other rows."""
        return replace(self, samples=tuple(samples))


def find_manifest(path: Path) -> Path:
    """The manifest meant by `path`: the file itself, or `manifest.csv` in that folder."""
    if path.is_dir():
        inside = path / MANIFEST_NAME
        if not inside.is_file():
            raise DataError(
                f"{path}: no {MANIFEST_NAME} in this folder; make one with "
                f"'slimreid data import {path} --layout auto --out {inside}'"
            )
        return inside
    if not path.is_file():
        raise DataError(f"{path}: no such manifest; give a CSV file or a folder with {MANIFEST_NAME}")
    return path


def read_manifest(path: Path | str, modalities: Sequence[str] | None = None) -> Manifest:
    """Read a manifest; `modalities` chooses some of its path columns or declares new names.

    Raises `DataError` with every faulty row (the first twenty) and the cure.
    """
    manifest, problems = parse_manifest(Path(path), modalities)
    if problems:
        shown = "\n  ".join(str(p) for p in problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise DataError(f"{find_manifest(Path(path))}: {len(problems)} faulty rows\n  {shown}{more}")
    return manifest


def parse_manifest(path: Path, modalities: Sequence[str] | None = None) -> tuple[Manifest, list[Problem]]:
    """Read a manifest and list its faulty rows, which are left out of the result.

    Raises `DataError` where the table as a whole cannot be read.
    """
    path = find_manifest(path)
    header, rows = _read_table(path)
    columns = _Columns.from_header(path, header, modalities)
    samples: list[Sample] = []
    problems: list[Problem] = []
    for number, cells in rows:
        if len(cells) != len(header):
            message = f"{len(cells)} cells, but the header has {len(header)}"
            problems.append(Problem("error", number, message, "add or remove commas, or quote the cell"))
            continue
        found = columns.sample(dict(zip(header, cells, strict=True)), number)
        if isinstance(found, Sample):
            samples.append(found)
        else:
            problems.append(found)
    protocol = _constant(path, "protocol", header, rows) or "camera"
    if protocol not in PROTOCOLS:
        raise DataError(f"{path}: protocol '{protocol}' is not one of {', '.join(PROTOCOLS)}")
    manifest = Manifest(
        samples=tuple(samples),
        modalities=columns.modalities,
        root=path.parent,
        protocol=protocol,
        origin=_constant(path, "origin", header, rows),
    )
    return manifest, problems


def _read_table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets like to add a byte-order mark
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as 'CSV UTF-8'") from None
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(number, row) for number, row in enumerate(reader, start=1) if any(c.strip() for c in row)]
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV table ({error})") from None
    if not rows:
        raise DataError(f"{path}: empty; the first row must be a header such as split,identity,camera,rgb")
    header = [cell.strip() for cell in rows[0][1]]
    if len(header) == 1 and ";" in header[0]:
        raise DataError(f"{path}: columns are separated by ';'; use commas")
    return header, rows[1:]


def _constant(path: Path, column: str, header: list[str], rows: list[tuple[int, list[str]]]) -> str:
    """The one value of a column that must not vary, or '' where there is none."""
    if column not in header:
        return ""
    at = header.index(column)
    values = {cells[at].strip() for _, cells in rows if len(cells) == len(header)} - {""}
    if len(values) > 1:
        raise DataError(f"{path}: column '{column}' must hold one value throughout, not {sorted(values)}")
    return next(iter(values), "")


@dataclass(frozen=True)
class _Columns:
    """Which column of a header means what."""

    paths: dict[str, str]
    """Modality -> name of its path column as written in the file."""
    boxes: dict[str, str]
    windows: dict[str, str]
    extras: tuple[str, ...]

    @property
    def modalities(self) -> tuple[str, ...]:
        return order(self.paths)

    @classmethod
    def from_header(cls, path: Path, header: list[str], modalities: Sequence[str] | None) -> _Columns:
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise DataError(f"{path}: column {repeated[0]!r} appears twice; remove or rename one")
        missing = [name for name in _REQUIRED if name not in header]
        if missing:
            near = difflib.get_close_matches(missing[0], header, n=1)
            hint = f" (is '{near[0]}' meant?)" if near else ""
            raise DataError(f"{path}: no column '{missing[0]}'{hint}; the header is {','.join(header)}")
        wanted = declare(modalities) if modalities else None
        kinds: dict[str, dict[str, str]] = {"": {}, "box": {}, "window": {}}
        extras = []
        for column in header:
            if column in _PLAIN:
                continue
            if column.startswith("x_"):
                extras.append(column)
                continue
            base, _, suffix = column.partition("_")
            name = find_modality(base) or (base if wanted and base in wanted else None)
            if name is None and wanted is not None and suffix in kinds:
                continue  # a spectrum that was not asked for
            if name is None or suffix not in kinds:
                raise DataError(_unknown_column(path, column))
            if name in kinds[suffix]:
                raise DataError(f"{path}: columns '{kinds[suffix][name]}' and '{column}' are the same")
            if wanted is None or name in wanted:
                kinds[suffix][name] = column
        absent = [name for name in wanted or () if name not in kinds[""]]
        if absent or not kinds[""]:
            what = absent[0] if absent else next(iter(MODALITIES))
            raise DataError(f"{path}: no path column '{what}'; the header is {','.join(header)}")
        for suffix in ("box", "window"):
            for name, column in kinds[suffix].items():
                if name not in kinds[""]:
                    raise DataError(f"{path}: column '{column}' has no path column '{name}' to go with")
        return cls(kinds[""], kinds["box"], kinds["window"], tuple(extras))

    def sample(self, cells: dict[str, str], number: int) -> Sample | Problem:
        """The row as a sample, or what is wrong with it."""

        def fault(message: str, cure: str) -> Problem:
            return Problem("error", number, message, cure)

        cells = {name: cell.strip() for name, cell in cells.items()}
        for name in _REQUIRED:
            if not cells[name]:
                return fault(f"'{name}' is empty", f"fill in the {name} or drop the row")
        split = next((s for s in SPLITS if s == cells["split"]), None)
        if split is None:
            near = difflib.get_close_matches(cells["split"], SPLITS, n=1)
            hint = f"write '{near[0]}'" if near else f"use one of {', '.join(SPLITS)}"
            return fault(f"unknown split '{cells['split']}'", hint)
        images: dict[str, ImageRef] = {}
        for name in self.modalities:
            location = cells[self.paths[name]].replace("\\", "/")
            if not location:
                continue
            try:
                box = _numbers(cells.get(self.boxes.get(name, ""), ""), 4)
                window = _numbers(cells.get(self.windows.get(name, ""), ""), 2)
            except ValueError as error:
                return fault(f"'{name}': {error}", "a box is 'left top right bottom', a window 'low high'")
            whole = box is None or all(value.is_integer() for value in box)
            if box and not (whole and 0 <= box[0] < box[2] and 0 <= box[1] < box[3]):
                cure = "write 'left top right bottom' in whole pixels"
                return fault(f"box of '{name}' is empty, negative or broken", cure)
            if window and not window[0] < window[1]:
                return fault(f"window of '{name}' is empty", "write 'low high' with low below high")
            images[name] = ImageRef(
                location,
                (int(box[0]), int(box[1]), int(box[2]), int(box[3])) if box else None,
                (window[0], window[1]) if window else None,
            )
        if not images:
            return fault("no image at all", "give at least one path or drop the row")
        extras = {name: cells[name] for name in self.extras}
        return Sample(
            split, cells["identity"], cells["camera"], cells.get("scene", ""), images, extras, number
        )


def _numbers(text: str, count: int) -> tuple[float, ...] | None:
    if not text:
        return None
    parts = text.replace(",", " ").split()
    try:
        values = tuple(float(part) for part in parts)
    except ValueError:
        raise ValueError(f"'{text}' is not {count} numbers") from None
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ValueError(f"'{text}' is not {count} numbers")
    return values


def _unknown_column(path: Path, column: str) -> str:
    known = [*_PLAIN, *(f"{m}{s}" for m in MODALITIES for s in ("", "_box", "_window"))]
    near = difflib.get_close_matches(column, known, n=1)
    hint = f"did you mean '{near[0]}'? Otherwise " if near else ""
    return (
        f"{path}: unknown column '{column}'; {hint}write 'x_{column}' to carry it along unread, "
        f"or declare a new modality with --modalities (in a config: data.modalities)"
    )


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write a manifest atomically; columns that are empty throughout are left out (but `scene` stays)."""
    with_box = {m for s in manifest.samples for m, image in s.images.items() if image.box}
    with_window = {m for s in manifest.samples for m, image in s.images.items() if image.window}
    extras = list(dict.fromkeys(name for s in manifest.samples for name in s.extras))
    header = [*_REQUIRED, "scene"]
    for name in manifest.modalities:
        header += [name, *[f"{name}_box"] * (name in with_box), *[f"{name}_window"] * (name in with_window)]
    header += [*["protocol"] * (manifest.protocol != "camera"), *["origin"] * bool(manifest.origin), *extras]
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, header, restval="", lineterminator="\n")
    writer.writeheader()
    for sample in manifest.samples:
        cells = {
            "split": sample.split,
            "identity": sample.identity,
            "camera": sample.camera,
            "scene": sample.scene,
            **sample.extras,
        }
        for name, image in sample.images.items():
            cells[name] = image.path
            if image.box:
                cells[f"{name}_box"] = " ".join(map(str, image.box))
            if image.window:
                cells[f"{name}_window"] = " ".join(f"{v:.10g}" for v in image.window)
        constants = {"protocol": manifest.protocol, "origin": manifest.origin}
        cells |= {name: value for name, value in constants.items() if name in header}
        writer.writerow(cells)
    write_text(path, buffer.getvalue())
