"""What was embedded: counted from the files themselves, as each id must be there once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from slimreid.bulk.tables import read_blocks
from slimreid.errors import DataError
from slimreid.files import write_text
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
        """Of this call."""
        return self.new_rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> str:
        """As text."""
        values = {**asdict(self), "rows_per_second": round(self.rows_per_second, 2)}
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def count_rows(files: Sequence[Path]) -> tuple[int, Counter[str]]:
    """Rows of Parquet files, and rows per status."""
    rows, statuses = 0, Counter[str]()
    for batch in read_blocks(files, ["status"], 65536):
        rows += batch.num_rows
        statuses.update(batch.column(0).to_pylist())
    return rows, statuses


def check_complete(files: Sequence[Path], expected: int) -> Counter[str]:
    """Rows per status, once every id is there exactly once; raises `DataError` saying what is amiss."""
    rows, statuses = count_rows(files)
    parts = [batch.column(0).to_numpy() for batch in read_blocks(files, ["id"], 65536)]
    different = len(np.unique(np.concatenate(parts))) if parts else 0
    if different != rows or rows != expected:
        where = files[0].parent if files else "no file"
        raise DataError(
            f"{where}: {rows:,} rows of {different:,} different ids, but the manifest has {expected:,}; "
            "remove the folder and embed again"
        )
    return statuses


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
