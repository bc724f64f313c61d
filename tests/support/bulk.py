"""A model and a manifest for tests of embeddings in Parquet, and how to read these back."""

import numpy as np
import pyarrow.parquet as pq

from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, parquet_files
from support.exported import write_exported_model
from support.runs import write_set


def write_bulk_set(folder, times=4):
    """Model and manifest: the rows of the small set several times over, one with a file that is not there."""
    manifest = write_set(folder / "set", missing=True)
    header, *rows = manifest.read_text().splitlines()
    long = folder / "set" / "long.csv"
    lines = [f"{row},2026-01-02T03:04:{n % 60:02d}Z" for n, row in enumerate(rows * times)]
    lines[5] = lines[5].replace("nir/", "nowhere/")
    long.write_text("\n".join([f"{header},x_time", *lines]) + "\n")
    return write_exported_model(folder / "model"), long


def read_rows(out):
    """All rows of a folder of embeddings, by id; fails where an id is there twice."""
    found = [row for path in parquet_files(out / ROWS_FOLDER) for row in pq.read_table(path).to_pylist()]
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == len(found), "an id is there twice"
    return by_id


def assert_same_rows(found, expected):
    """Same ids, labels, statuses and errors; features within 1e-6."""
    assert found.keys() == expected.keys()
    for number, row in expected.items():
        other = found[number]
        assert {k: v for k, v in other.items() if k != "feature"} == {
            k: v for k, v in row.items() if k != "feature"
        }
        if row["feature"] is None:
            assert other["feature"] is None
        else:
            np.testing.assert_allclose(other["feature"], row["feature"], rtol=0, atol=1e-6)
