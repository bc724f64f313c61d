"""The CSV file of a manifest: reading and writing it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from slimreid.data.manifest.rows import (
    MANIFEST_NAME,
    PROTOCOLS,
    REQUIRED,
    Columns,
    Manifest,
    Protocol,
    Sample,
)
from slimreid.data.problems import Problem
from slimreid.errors import DataError
from slimreid.files import csv_text, open_regular, write_new

MAX_BYTES = 1 << 30
"""Larger tables are refused: the largest datasets of the field take a hundredth of it."""


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
    (_, header), *rows = csv_rows(path, MAX_BYTES)
    columns = Columns.from_header(path, header, modalities)
    samples: list[Sample] = []
    problems: list[Problem] = []
    for number, cells in rows:
        named = name_cells(header, cells, number)
        found = named if isinstance(named, Problem) else columns.sample(named, number)
        if isinstance(found, Sample):
            samples.append(found)
        else:
            problems.append(found)
    manifest = Manifest(
        samples=tuple(samples),
        modalities=columns.modalities,
        root=path.parent,
        protocol=find_protocol(path, _constant(path, "protocol", header, rows)),
        origin=_constant(path, "origin", header, rows),
    )
    return manifest, problems


def csv_rows(path: Path, most_bytes: int) -> Iterator[tuple[int, list[str]]]:
    """Number, as in a spreadsheet, and cells of the rows that are not empty; the first is the header.

    Raises `DataError` for a file of more than `most_bytes`, or one that is no CSV table in UTF-8.
    """
    with (
        open_regular(path, most_bytes) as file,
        io.TextIOWrapper(file, "utf-8-sig", newline="") as text,  # spreadsheets like a byte-order mark
    ):
        reader = enumerate(csv.reader(text, strict=True), start=1)
        rows = ((number, cells) for number, cells in reader if any(cell.strip() for cell in cells))
        try:
            number, header = next(rows, (0, []))
            yield number, _checked_header(path, header)
            yield from rows
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as 'CSV UTF-8'") from None
        except csv.Error as error:
            raise DataError(f"{path}: not a CSV table ({error})") from None


def _checked_header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if not header:
        raise DataError(f"{path}: empty; the first row must be a header such as split,identity,camera,rgb")
    if len(header) == 1 and ";" in header[0]:
        raise DataError(f"{path}: columns are separated by ';'; use commas")
    return header


def name_cells(header: Sequence[str], cells: Sequence[str], number: int) -> dict[str, str] | Problem:
    """The cells of a row by column, or what is wrong with it."""
    if len(cells) != len(header):
        message = f"{len(cells)} cells, but the header has {len(header)}"
        return Problem("error", number, message, "add or remove commas, or quote the cell")
    return dict(zip(header, cells, strict=True))


def find_protocol(path: Path, word: str) -> Protocol:
    """The protocol that a manifest names, `camera` where it names none; raises `DataError`."""
    protocol = next((p for p in PROTOCOLS if p == (word or "camera")), None)
    if protocol is None:
        raise DataError(f"{path}: protocol '{word}' is not one of {', '.join(PROTOCOLS)}")
    return protocol


def _constant(path: Path, column: str, header: list[str], rows: list[tuple[int, list[str]]]) -> str:
    """The one value of a column that must not vary, or '' where there is none."""
    if column not in header:
        return ""
    at = header.index(column)
    values = {cells[at].strip() for _, cells in rows if len(cells) == len(header)} - {""}
    if len(values) > 1:
        raise DataError(f"{path}: column '{column}' must hold one value throughout, not {sorted(values)}")
    return next(iter(values), "")


def write_manifest(manifest: Manifest, path: Path, overwrite: bool = True) -> bool:
    """Write a manifest atomically; False if the file holds it already.

    Columns that are empty throughout are left out (but `scene` stays). Raises `DataError` where another
    manifest would be replaced and `overwrite` is False.
    """
    return write_new(path, format_manifest(manifest).encode("utf-8"), overwrite)


def format_manifest(manifest: Manifest) -> str:
    """The text of a manifest file."""
    with_box = {m for s in manifest.samples for m, image in s.images.items() if image.box}
    with_window = {m for s in manifest.samples for m, image in s.images.items() if image.window}
    extras = list(dict.fromkeys(name for s in manifest.samples for name in s.extras))
    header = [*REQUIRED, "scene"]
    for name in manifest.modalities:
        header += [name, *[f"{name}_box"] * (name in with_box), *[f"{name}_window"] * (name in with_window)]
    header += [*["protocol"] * (manifest.protocol != "camera"), *["origin"] * bool(manifest.origin), *extras]
    rows = [header]
    for sample in manifest.samples:
        cells = {
            "split": sample.split,
            "identity": sample.identity,
            "camera": sample.camera,
            "scene": sample.scene,
            **sample.extras,
            "protocol": manifest.protocol,
            "origin": manifest.origin,
        }
        for name, image in sample.images.items():
            cells[name] = image.path
            if image.box:
                cells[f"{name}_box"] = " ".join(map(str, image.box))
            if image.window:
                cells[f"{name}_window"] = " ".join(f"{v:.10g}" for v in image.window)
        rows.append([cells.get(name, "") for name in header])
    return csv_text(rows)
