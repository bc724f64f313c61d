"""The benchmark of several processes runs, on a small model."""

from __future__ import annotations

import json
import sys

import pytest

from support import skips


@pytest.mark.skipif(sys.platform != "linux", reason=skips.NOT_LINUX)
def test_ways_and_memory_are_measured(load_benchmark, exported, tmp_path, capsys):
    benchmark = load_benchmark("workers")
    words = [str(exported), "--workers", "2", "--rounds", "1", "--calls", "1"]
    assert benchmark.main([*words, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    threads = {row["way"]: row["threads"] for row in found["rows"]}
    cores = benchmark.usable_cores()
    assert threads == {
        "one thread": 1,
        "default": max(1, cores // 2),
        "all cores": cores,
        "all cores, spinning": cores,
    }
    assert found["rows"][0]["ratio"] == 1
    assert [len(each) for each in found["memory_mb"].values()] == [3, 3]
    assert "to one thread" in capsys.readouterr().out
