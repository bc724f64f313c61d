"""The benchmark of whole models runs, on a small backbone."""

from __future__ import annotations

import json

import pytest
import torch

SMALL = ["--backbone", "nano", "--height", "64", "--width", "32", "--quick"]


@pytest.fixture
def throughput(load_benchmark):
    benchmark = load_benchmark("throughput")
    threads = torch.get_num_threads()
    yield benchmark
    torch.set_num_threads(threads)


def test_all_ways_are_measured(throughput, tmp_path, capsys):
    assert throughput.main([*SMALL, "--json", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["mode"], row["batch"], row["way"]) for row in rows] == [
        (mode, batch, way)
        for mode, batch in (("inference", 1), ("training step", 2))
        for way in throughput.WAYS
    ]
    cost = {row["way"]: row["gflops"] for row in rows}
    assert cost["plain"] == pytest.approx(cost["unslimmed"], rel=1e-6), "the same network"
    assert cost["in_backbone"] < 0.7 * cost["plain"]
    assert all(row["peak_mb"] > 0 and row["triples_per_second"] > 0 for row in rows)
    assert all(row["ratio"] == 1 for row in rows if row["way"] == "plain")
    assert "ours, reduction in the backbone" in capsys.readouterr().out


def test_a_part_of_it(throughput, capsys):
    throughput.main([*SMALL, "--only", "unslimmed", "in_backbone", "--no-training"])
    out = capsys.readouterr().out
    assert "training step" not in out
    assert "plain" not in out


def test_models_that_differ_are_refused(throughput):
    models = throughput.build("nano", (64, 32))
    with torch.no_grad():
        models["plain"].vit.blocks[0].attention.out_proj.bias = torch.nn.Parameter(torch.randn(96))
    with pytest.raises(AssertionError, match="not close"):
        throughput.check(models, (64, 32))
