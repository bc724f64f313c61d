"""What was embedded: counted from the files themselves, as each id must be there once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.arrays import Ints
from slimreid.errors import DataError
from slimreid.files import write_text
from slimreid.inference.embedding_sets.tables import parquet_files, read_blocks, write_table
from slimreid.json_files import check_object, parse_json

SUMMARY_NAME = "summary.json"


@dataclass(frozen=True)
class Summary:
    """What became of all rows."""

    rows: int
    statuses: Mapping[str, int]
    """Rows per status."""
    seconds: float
    """Of this call; 0 where all had been done before."""
    new_rows: int
    """Rows that this call embedded."""
    engine: str
    out: str

    @property
    def rows_per_second(self) -> float:
        """Rows that this call embedded per second; 0 where it had nothing to do."""
        return self.new_rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> str:
        """The text of `summary.json`: all fields and the rows per second."""
        values = {**asdict(self), "rows_per_second": round(self.rows_per_second, 2)}
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def count_rows(files: Sequence[Path]) -> tuple[int, Counter[str]]:
    """Rows of Parquet files, and rows per status."""
    rows, statuses = 0, Counter[str]()
    for batch in read_blocks(files, ["status"], 65536):
        rows += batch.num_rows
        statuses.update(batch.column(0).to_pylist())
    return rows, statuses


def mend(folder: Path, expected: int) -> None:
    """Remove what a process left that outlived a killed driver for a moment: torn files, and repeated rows.

    The next driver has embedded these rows too, as no checkpoint says that they are done.
    """
    rows = 0
    for path in parquet_files(folder):
        try:
            rows += pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError):
            path.unlink()
    if rows > expected:
        drop_repeats(parquet_files(folder))


def drop_repeats(files: Sequence[Path]) -> int:
    """Take out rows whose id an earlier file has; how many."""
    seen = np.zeros(0, np.int64)
    dropped = 0
    for path in files:
        ids = _ids([path])
        new = ~np.isin(ids, seen)
        if not new.all():
            dropped += int((~new).sum())
            if new.any():
                write_table(path, pq.read_table(path).filter(pa.array(new)))
            else:
                path.unlink()
        seen = np.concatenate([seen, ids[new]])
    return dropped


def check_complete(files: Sequence[Path], expected: int) -> Counter[str]:
    """Rows per status, once every id is there exactly once; raises `DataError` saying what is amiss."""
    rows, statuses = count_rows(files)
    different = len(np.unique(_ids(files)))
    if different != rows or rows != expected:
        where = files[0].parent if files else "no file"
        raise DataError(
            f"{where}: {rows:,} rows of {different:,} different ids, but the manifest has {expected:,}; "
            "remove the folder and embed again"
        )
    return statuses


def _ids(files: Sequence[Path]) -> Ints:
    parts = [batch.column(0).to_numpy() for batch in read_blocks(files, ["id"], 65536)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def write_summary(folder: Path, summary: Summary) -> None:
    """Write the summary beside the rows: from now on the folder is complete."""
    write_text(folder / SUMMARY_NAME, summary.to_json())


def read_summary(folder: Path) -> Summary | None:
    """The summary of a complete folder; None where it is not complete. Raises `DataError` if damaged."""
    path = folder / SUMMARY_NAME
    if not path.is_file():
        return None
    try:
        values = check_object(
            parse_json(path.read_bytes()), {"rows": int, "statuses": dict, "engine": str, "out": str}
        )
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}); remove it, and embed again") from None
    return Summary(values["rows"], values["statuses"], 0.0, 0, values["engine"], values["out"])
