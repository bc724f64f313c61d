"""Tables of images of any length, CSV or Parquet, row by row: never the whole of them in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.bulk.images import is_url
from slimreid.data.manifest import (
    GROUP_COLUMN,
    TIME_COLUMN,
    ImageRef,
    Protocol,
    Sample,
    find_manifest,
    images_to_json,
)
from slimreid.data.manifest.rows import Columns
from slimreid.data.manifest.table import csv_rows, find_protocol, name_cells
from slimreid.data.problems import Problem
from slimreid.errors import ConfigError, DataError
from slimreid.inference.embedding_sets.tables import IMAGE_ROWS, write_table
from slimreid.modalities import find_modality
from slimreid.times import parse_time

PARQUET = ".parquet"


@dataclass(frozen=True)
class LongManifest:
    """A table of images that is read row by row."""

    path: Path
    columns: Columns
    header: tuple[str, ...]
    protocol: Protocol
    """As the first row says, and so `origin`."""
    origin: str

    @classmethod
    def open(cls, path: Path, modalities: Sequence[str]) -> LongManifest:
        """Open a manifest, or the `manifest.csv` of a folder, for a model of these modalities.

        Raises `DataError` naming what is wrong with the file or its header.
        """
        path = find_manifest(path)
        is_parquet = path.suffix.lower() == PARQUET
        header = tuple(_parquet_header(path) if is_parquet else next(csv_rows(path, sys.maxsize))[1])
        named = [find_modality(name) or name for name in header]
        known = [name for name in modalities if name in named]
        if not known:
            raise DataError(f"{path}: no column of {', '.join(modalities)}, which the model knows")
        columns = Columns.from_header(path, header, known)
        first = next(_rows(path, header), (0, {}))[1]
        protocol = find_protocol(path, first.get("protocol", "").strip())
        return cls(path, columns, header, protocol, first.get("origin", "").strip())

    def samples(self, split: str = "") -> Iterator[Sample]:
        """The rows, or those of a split; raises `DataError` at the first that is faulty."""
        for number, cells in _rows(self.path, self.header):
            found = self.columns.sample(cells, number)
            if not isinstance(found, Sample):
                raise DataError(f"{self.path}: {found}")
            if not split or found.split == split:
                yield found


def stage_rows(manifest: LongManifest, folder: Path, split: str, part_rows: int) -> int:
    """Write the rows into Parquet files of `part_rows` rows, with ids and whole paths; how many rows.

    Files that are there are written again, with the same content.
    """
    samples, root, count = manifest.samples(split), manifest.path.resolve().parent, 0
    while part := list(islice(samples, part_rows)):
        table = pa.table(_columns(part, root), schema=IMAGE_ROWS)
        write_table(folder / f"part-{count // part_rows:06d}{PARQUET}", table)
        count += len(part)
    if not count:
        raise DataError(f"{manifest.path}: no rows" + (f" of split '{split}'" if split else ""))
    return count


def _columns(part: Sequence[Sample], root: Path) -> dict[str, object]:
    return {
        "id": [s.row for s in part],
        "split": [s.split for s in part],
        "identity": [s.identity for s in part],
        "camera": [s.camera for s in part],
        "scene": [s.scene for s in part],
        "group": [s.extras.get(GROUP_COLUMN, "") for s in part],
        "time": [seconds(s.extras.get(TIME_COLUMN, ""), s.row) for s in part],
        "images": [images_to_json({name: _whole(i, root) for name, i in s.images.items()}) for s in part],
    }


def _whole(image: ImageRef, root: Path) -> ImageRef:
    return image if is_url(image.path) else replace(image, path=(root / image.path).as_posix())


def seconds(text: str, row: int = 0) -> float | None:
    """The time of a row, see `parse_time`; raises `DataError` naming the row."""
    try:
        return parse_time(text)
    except ConfigError as error:
        raise DataError(f"row {row}: {TIME_COLUMN} {error}") from None


def _rows(path: Path, header: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Number, as in a spreadsheet, and cells of each row."""
    if path.suffix.lower() == PARQUET:
        yield from enumerate(_parquet_rows(path), start=2)
    else:
        yield from _csv_rows(path, header)


def _csv_rows(path: Path, header: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    for number, cells in islice(csv_rows(path, sys.maxsize), 1, None):
        named = name_cells(header, cells, number)
        if isinstance(named, Problem):
            raise DataError(f"{path}: {named}")
        yield number, named


def _parquet_rows(path: Path) -> Iterator[Mapping[str, str]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(4096):
            for row in batch.to_pylist():
                yield {name: "" if value is None else str(value) for name, value in row.items()}


def _parquet_header(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from None
