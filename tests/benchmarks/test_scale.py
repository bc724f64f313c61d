"""Ray against one process: what counts as the same rows, which figures are compared, and going on."""

from __future__ import annotations

import json
import os
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def scale(load_benchmark):
    return load_benchmark("scale")


def write_rows(folder, ids, features, status="ok"):
    (folder / "rows").mkdir(parents=True)
    for number, part in enumerate((slice(0, 1), slice(1, None))):
        table = pa.table(
            {
                "id": ids[part],
                "status": [status] * len(ids[part]),
                "feature": pa.array(features[part], pa.list_(pa.float32(), 2)),
            }
        )
        pq.write_table(table, folder / "rows" / f"{number}.parquet")
    return folder


def test_rows_are_compared_whatever_their_order(scale, tmp_path) -> None:
    first = write_rows(tmp_path / "a", [1, 2, 3], [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    second = write_rows(tmp_path / "b", [3, 1, 2], [[0.5, 0.75], [0.0, 1.0], [1.0, 0.0]])
    assert scale.difference(first, second) == (0, 0.25)
    twice = write_rows(tmp_path / "c", [1, 2, 2], [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert scale.difference(first, twice)[0] == 1
    fewer = write_rows(tmp_path / "d", [1, 2], [[0.0, 1.0], [1.0, 0.0]])
    assert scale.difference(first, fewer)[0] == 1
    other = write_rows(tmp_path / "e", [1, 2, 3], [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], "unreadable")
    assert scale.difference(first, other)[0] == 3


def test_the_verdict_compares_best_runs(scale) -> None:
    results = [
        {"backbone": "nano", "rows": rows, "engine": engine, **figures}
        for rows, engine, rate, after, seconds, peak in [
            (25, "local", 9, 9, 3.0, 400),
            (25, "ray", 5, 8, 6.0, 2000),
            (100, "local", 10, 10, 10.5, 410),
            (100, "local", 4, 4, 11.0, 420),
            (100, "ray", 8, 9, 14.0, 2010),
        ]
        for figures in [dict(zip((*scale.RATES, *scale.COSTS), (rate, after, seconds, peak), strict=True))]
    ]
    said = scale.verdict(results, "nano", 100)
    for part in (
        "0.80× the rows per second of one process",  # 8 / 10
        "0.90× after the start",  # 9 / 10
        "0.75× the rows per second of processor time",  # 10.5 / 14
        "0.94× after the start (100.00 and 106.67 ms a row)",  # 7.5 s and 8 s for 75 rows
        "local 400 → 410 MB, ray 2,000 → 2,010 MB",
    ):
        assert part in said


def test_figures_are_kept_and_not_measured_again(scale, tmp_path) -> None:
    scale.Results(tmp_path / "results.json").add(backbone="nano", rows=5, seconds=1.5)
    again = scale.Results(tmp_path / "results.json")
    assert again.have(backbone="nano", rows=5)
    assert not again.have(backbone="nano", rows=6)
    assert json.loads((tmp_path / "results.json").read_text()) == again.found


def test_what_a_command_costs_includes_its_children(load_benchmark, monkeypatch) -> None:
    process_tree = load_benchmark("process_tree")
    monkeypatch.setattr(process_tree, "BETWEEN", 0.05)
    busy = "while time.process_time() < 1: pass\ntime.sleep(0.5)"  # memory is looked at every 0.4 s
    child = f"import time\nx = b'x' * (64 * 2**20)\n{busy}"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('done')"
    began = time.monotonic()
    cost = process_tree.measured([sys.executable, "-c", program], dict(os.environ))
    assert cost.text == "done\n"
    assert 0.7 <= cost.processor_seconds <= cost.seconds + 0.1
    assert cost.seconds <= time.monotonic() - began
    assert cost.peak_mb > 64
