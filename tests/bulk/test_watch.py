"""What a person sees of a long embedding: rows, rate, failures by kind, what is left."""

import logging
import shutil
import time

import pytest

import slimreid
from slimreid.bulk import watch
from slimreid.bulk.watch import Watch, watched
from slimreid.inference.embedding_sets.tables import parquet_files
from support.bulk import write_bulk_set


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Four files of rows: 240 in all, one of them unreadable."""
    folder = tmp_path_factory.mktemp("watch")
    model, manifest = write_bulk_set(folder)
    slimreid.embed_dataset(manifest, model, folder / "out")
    return parquet_files(folder / "out" / "rows")


def test_files_are_counted_as_they_appear(rows, tmp_path):
    shutil.copy(rows[1], tmp_path)
    seen = Watch(tmp_path, 240)
    assert (seen.before, seen.rows) == (64, 64)
    assert seen.line().startswith("64 of 240 rows, 0.0 rows/s")
    assert "left" not in seen.line(), "nothing is known of the end yet"
    (tmp_path / "part-9.parquet").write_bytes(rows[0].read_bytes()[:500])  # being written
    seen.look()
    assert seen.rows == 64
    shutil.copy(rows[0], tmp_path / "part-9.parquet")
    seen.started = time.monotonic() - 32
    seen.look()
    assert seen.line() == "128 of 240 rows, 2.0 rows/s, 1 unreadable, 0.9 min left"
    seen.look()
    assert seen.rows == 128, "a file counts once"


def test_where_there_is_no_terminal_a_line_comes_now_and_then(rows, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LINES", 0.0)
    with (
        caplog.at_level(logging.INFO, "slimreid.bulk.watch"),
        watched(Watch(tmp_path, 240), show=False, interval=0.01),
    ):
        for path in rows:
            shutil.copy(path, tmp_path)
        end = time.monotonic() + 60
        while "240 of 240 rows" not in caplog.text and time.monotonic() < end:
            time.sleep(0.01)
    assert "240 of 240 rows" in caplog.text
    assert "1 unreadable, 0.0 min left" in caplog.text
