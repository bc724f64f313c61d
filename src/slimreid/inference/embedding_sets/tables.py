"""The two kinds of Parquet files: rows of images that are to be embedded, and rows of embeddings.

| column       | type                     | what                                                          |
|--------------|--------------------------|---------------------------------------------------------------|
| `id`         | int64                    | row of the manifest as in a spreadsheet, where the header is 1 |
| `split`      | string                   | train, val, query, gallery                                    |
| `identity`   | string                   | '' where nobody knows                                         |
| `camera`     | string                   |                                                               |
| `scene`      | string                   |                                                               |
| `group`      | string                   | tracklet; '' for none                                         |
| `time`       | double                   | seconds since 1970, null where nobody knows                   |
| `images`     | string                   | JSON {modality: {path, box, window}}                          |
| `modalities` | list of string           | those that the feature was computed from                      |
| `hash`       | string                   | of the content of their files, see `content_hash`             |
| `feature`    | fixed-size list of float | L2-normalised; null where status is not ok                    |
| `status`     | string                   | see `Status`                                                  |
| `error`      | string                   | why there is no feature; '' where there is one                |

Rows of images have the columns up to `images`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.arrays import Floats
from slimreid.errors import DataError
from slimreid.files import atomic_write, naming

Status = Literal["ok", "unreadable", "no image", "not finite"]
"""What became of a row: embedded; a file is missing or broken; it has nothing that was asked for; NaN."""

ROWS_FOLDER = "rows"
"""Folder of the Parquet files within a folder of embeddings."""

_TEXTS = [(name, pa.string()) for name in ("split", "identity", "camera", "scene", "group")]
IMAGE_ROWS = pa.schema([("id", pa.int64()), *_TEXTS, ("time", pa.float64()), ("images", pa.string())])


def embedding_rows(dimension: int) -> pa.Schema:
    """Columns of embeddings with so many numbers each."""
    return pa.schema(
        [
            *IMAGE_ROWS,
            ("modalities", pa.list_(pa.string())),
            ("hash", pa.string()),
            ("feature", pa.list_(pa.float32(), dimension)),
            ("status", pa.string()),
            ("error", pa.string()),
        ]
    )


@dataclass(frozen=True, eq=False)
class Embedded:
    """What became of some rows."""

    features: Floats
    """(n, D); anything where the status is not ok."""
    modalities: Sequence[Sequence[str]]
    hash: Sequence[str]
    """'' where a file could not be read."""
    status: Sequence[Status]
    error: Sequence[str]


def join_columns(rows: pa.Table, found: Embedded) -> pa.Table:
    """Rows of images (n) with what became of them, as rows of embeddings."""
    n, D = found.features.shape
    flat = pa.array(found.features.reshape(-1), pa.float32())
    missing = pa.array([status != "ok" for status in found.status], pa.bool_())
    feature = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(pa.float32(), D), mask=missing)
    columns = [rows.column(name) for name in IMAGE_ROWS.names]
    columns += [found.modalities, found.hash, feature, found.status, found.error]
    return pa.table(columns, schema=embedding_rows(D))


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, whole or not at all."""
    with atomic_write(path) as file, naming(path):
        # Features do not get smaller by compression; it would only cost time.
        pq.write_table(table, file, compression="none", use_dictionary=False)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names; those being written are left out."""
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))


def read_blocks(files: Sequence[Path], columns: Sequence[str], rows: int = 8192) -> Iterator[pa.RecordBatch]:
    """Some columns of Parquet files, `rows` rows at a time; raises `DataError` naming a damaged file."""
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(rows, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DataError(f"{path}: not a readable Parquet file of embeddings ({error})") from None


def feature_matrix(column: pa.FixedSizeListArray) -> Floats:
    """A column of features without gaps as (n, D)."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    matrix: Floats = values.astype(np.float32, copy=False).reshape(len(column), -1)
    return matrix
