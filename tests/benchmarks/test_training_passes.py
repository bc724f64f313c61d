"""The benchmark of training steps runs, on a small backbone."""

from __future__ import annotations

import json

import pytest
import torch

SMALL = ["--backbone", "nano", "--size", "32", "16", "--strides", "8", "--rounds", "1"]


@pytest.fixture
def passes(load_benchmark):
    threads = torch.get_num_threads()
    yield load_benchmark("training_passes")
    torch.set_num_threads(threads)


def test_every_step_is_compared_with_the_one_with_all_tokens(passes, capsys):
    assert passes.main([*SMALL, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["8"]
    assert [row["way"] for row in rows] == [*passes.ways(), passes.LOADING]
    full, load = rows[0], rows[-1]["seconds"]
    assert full["ratio"] == 1
    assert full["epochs"] == pytest.approx(0.8 * 8 - 2)
    for row in rows[:-1]:
        assert row["ratio"] == pytest.approx(row["seconds"] / full["seconds"])
        time = 2 * (full["seconds"] + load) + row["epochs"] * (row["seconds"] + load)
        assert time == pytest.approx(0.8 * 8 * (full["seconds"] + load)), "the whole run"
