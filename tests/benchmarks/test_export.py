"""The benchmark of exported models runs, on a small backbone."""

from __future__ import annotations

import json

import pytest
import torch


@pytest.fixture
def benchmark(load_benchmark):
    threads = torch.get_num_threads()
    yield load_benchmark("export")
    torch.set_num_threads(threads)


def test_all_ways_are_measured(benchmark, tmp_path, capsys):
    small = ["--backbone", "nano", "--height", "64", "--width", "32", "--quick"]
    assert benchmark.main([*small, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row["way"] for row in found["rows"]] == list(benchmark.WAYS)
    assert found["rows"][0]["ratio"] == 1
    assert all(0.9 < cosine <= 1.00001 for cosine in found["cosines"].values())
    assert "exported int8, slim" in capsys.readouterr().out
