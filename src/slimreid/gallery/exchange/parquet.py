"""Parquet out of a gallery and into one, in pieces: everything that it holds, and folders of embeddings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.data.manifest import images_from_json, images_to_json
from slimreid.errors import DataError
from slimreid.files import atomic_write, refuse_existing
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.exchange.embeddings import EmbeddedRows
from slimreid.gallery.exchange.transfer import Transferred, check_same_model, take_in
from slimreid.gallery.store.contract import CALIBRATION, Store, whole_rows
from slimreid.gallery.store.rows import Filter, ModelInfo, NewRow
from slimreid.inference.embedding_sets.tables import feature_matrix
from slimreid.progress import progress

FORMAT = 1
_HEADER = b"slimreid"
_COUNTED = 1024
"""Rows that are counted at once."""
_FIELDS = [field.name for field in fields(NewRow) if field.name != "feature"]


def schema(model: ModelInfo, settings: dict[str, str]) -> pa.Schema:
    """Columns of the files, and in the header what is true of all rows."""
    header = {"format": FORMAT, "model": json.loads(model.to_json()), "settings": settings}
    return pa.schema(
        [
            ("id", pa.int64()),
            ("identity", pa.string()),
            ("group", pa.string()),
            ("modalities", pa.list_(pa.string())),
            ("camera", pa.string()),
            ("time", pa.float64()),
            ("files", pa.string()),
            ("hash", pa.string()),
            ("quality", pa.float64()),
            ("reasons", pa.list_(pa.string())),
            ("thumbnail", pa.binary()),
            ("feature", pa.list_(pa.float32(), model.dimension)),
        ],
        metadata={_HEADER: json.dumps(header, ensure_ascii=False).encode()},
    )


def write_parquet(store: Store, path: Path, which: Filter, overwrite: bool = False) -> int:
    """Write rows into one file, whole or not at all; how many. Raises `DataError` where the file exists."""
    refuse_existing(path, overwrite)
    kept = {name: text for name, text in store.settings().items() if name == CALIBRATION}
    columns = schema(store.model, kept)
    count = 0
    with atomic_write(path) as file, pq.ParquetWriter(file, columns) as writer:
        for chunk in whole_rows(store, which):
            writer.write_table(pa.table(_columns(chunk), schema=columns))
            count += len(chunk)
    return count


def _columns(chunk: Sequence[tuple[int, NewRow]]) -> dict[str, Any]:
    numbers, rows = zip(*chunk, strict=True)
    features = np.stack([row.feature for row in rows])
    flat = pa.array(features.reshape(-1), type=pa.float32())
    return {
        **{name: [getattr(row, name) for row in rows] for name in _FIELDS},
        "id": numbers,
        "files": [images_to_json(row.files) for row in rows],
        "feature": pa.FixedSizeListArray.from_arrays(flat, features.shape[1]),
    }


@dataclass(eq=False)
class ExportedRows:
    """The rows of a file that `write_parquet` wrote."""

    place: Path
    model: ModelInfo
    settings: Mapping[str, str]
    left_out: Counter[str] = field(default_factory=Counter)
    """Empty: every row of a gallery has a feature."""

    @classmethod
    def open(cls, path: Path) -> ExportedRows:
        """Read model and settings; raises `DataError` for a file that is no exported gallery."""
        try:
            found = (pq.read_schema(path).metadata or {}).get(_HEADER)
            if found is None:
                raise DataError(
                    f"{path}: neither an exported gallery nor embeddings; make one with 'slimreid gallery "
                    "export' or 'slimreid embed --out FOLDER'"
                )
            header = json.loads(found)
            if header["format"] != FORMAT:
                raise DataError(f"{path}: written by another version of SlimReID")
            return cls(path, ModelInfo.from_json(json.dumps(header["model"])), dict(header["settings"]))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a readable Parquet file of a gallery ({error})") from None

    def chunks(self, size: int) -> Iterator[list[NewRow]]:
        """The rows, at most `size` at a time, never all in memory; raises `DataError` where it is damaged."""
        yield from map(_rows, self._batches(size))

    def hashes(self, size: int) -> Iterator[list[str]]:
        """Hashes of the rows that have one, at most `size` at a time."""
        for batch in self._batches(size, ["hash"]):
            yield [digest for digest in batch["hash"].to_pylist() if digest]

    def _batches(self, size: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.place) as file:
                yield from file.iter_batches(batch_size=size, columns=columns)
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
            raise DataError(f"{self.place}: damaged ({error}); export it again") from None


def _rows(batch: pa.RecordBatch) -> list[NewRow]:
    rows = []
    for line, feature in zip(
        batch.select(_FIELDS).to_pylist(), feature_matrix(batch["feature"]), strict=True
    ):
        line |= {name: tuple(line[name]) for name in ("modalities", "reasons")}
        rows.append(NewRow(**{**line, "files": images_from_json(line["files"]), "feature": feature}))
    return rows


Importable: TypeAlias = "EmbeddedRows | ExportedRows"
"""Rows in Parquet, of one model."""


def open_importable(path: Path) -> Importable:
    """What `slimreid gallery export` or `slimreid embed` wrote; raises `DataError` for anything else."""
    return EmbeddedRows.open(path) or ExportedRows.open(path)


def import_rows(
    store: Store, sources: Sequence[Importable], by: str, show_progress: bool | None = None
) -> Transferred:
    """Take in the rows that are not in a gallery yet, then look whether each of them is there once.

    Rows without a feature are counted only. A process that was killed is simply started again. Raises
    `OtherModelError` for features of another model, before anything is written.
    """
    settings: dict[str, str] = {}
    for source in sources:
        check_same_model(store, source.model, str(source.place))
        settings |= source.settings
    chunks = (rows for source in sources for rows in source.chunks(store.at_once))
    done = take_in(store, progress(chunks, "importing", show=show_progress), "import", by, settings)
    for source in sources:
        done.left_out.update(source.left_out)
        _verify(store, source)
    return done


def _verify(store: Store, source: Importable) -> None:
    """Raise `GalleryError` unless every row is in the gallery, and none twice."""
    wanted = found = 0
    for hashes in source.hashes(_COUNTED):
        different = list(dict.fromkeys(hashes))
        wanted += len(different)
        found += store.count(Filter(hashes=different))
    if found != wanted:
        raise GalleryError(
            f"{store.place}: {found:,} rows are there of the {wanted:,} in {source.place}; was it changed "
            "meanwhile? Import it again"
        )
