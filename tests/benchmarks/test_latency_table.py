"""Counts chosen from a latency table: predicted times against a plain loop, and the benchmark on a tiny run."""

from __future__ import annotations

import json

import pytest
import torch

from support.models import write_random_model
from support.runs import write_set


@pytest.fixture
def script(load_benchmark):
    threads = torch.get_num_threads()
    yield load_benchmark("latency_table")
    torch.set_num_threads(threads)


@pytest.fixture
def latency(script):
    return script.LatencyTable((4, 8, 16), (1.0, 2.0, 6.0), (0.5, 1.0, 2.0), 3.0, depth=5)


def test_predicted_time_is_the_sum_of_its_parts(latency):
    assert latency.seconds(()) == 3 + 5 * 6
    # one block with 16, a stage, two with 8, a stage, two with 6, which is half way from 4 to 8
    assert latency.seconds(((1, 8), (3, 6))) == pytest.approx(3 + 6 + 2 + 2 * 2 + 1 + 2 * 1.5)


def test_candidates_take_the_time_allowed_and_no_less(script, latency):
    allowed = latency.seconds(((2, 8), (3, 4)))
    found = script.candidates(latency, allowed, 4)
    assert ((2, 8), (3, 4)) in found
    assert all(script.SLACK * allowed <= latency.seconds(stages) <= allowed for stages in found)
    for stages in found:
        blocks, counts = zip(*stages, strict=True)
        assert list(blocks) == sorted(set(blocks))
        assert list(counts) == sorted(set(counts), reverse=True)


def test_nearest_changes_least(script):
    among = [
        ((1, 8), (3, 4)),
        ((1, 8), (2, 4)),
        ((1, 12), (2, 4)),
        ((1, 16), (4, 4)),
        ((1, 8), (2, 4), (3, 2)),
    ]
    assert script.nearest(among[0], among, 2, 4) == [among[1], among[2]]


def test_schedules_and_stages_say_the_same(script):
    stages = script.stages_from([[0.25, 0.7], [0.417, 0.4], [0.667, 0.2]], 128, 12)
    assert stages == ((3, 90), (5, 52), (8, 26))
    assert script.stages_from(script.schedule_of(stages, 128, 12), 128, 12) == stages


def test_the_best_is_measured_on_other_people_and_a_second_start_goes_on(
    script, tmp_path, capsys, monkeypatch
):
    manifest = write_set(tmp_path / "set")
    options = ("model.reduction=none", "model.fusion=mean", "transforms.height=64", "transforms.width=32")
    write_random_model(tmp_path / "run", manifest, *options, seed=0)
    path = tmp_path / "found.json"
    command = [str(tmp_path / "run"), "--choose-on", str(manifest), "--test", str(manifest)]
    command += ["--against", "[[0.5, 0.5]]", "--json", str(path), "--step", "4", "--repeats", "2"]
    command += ["--batch", "2", "--tries", "2", "--rounds", "1", "--near", "1", "--ours", "redundancy=0.75"]
    measure = script.measure_table

    def measured(*arguments):
        """The real table's counts with times that do not depend on the machine."""
        found = measure(*arguments)
        assert all(seconds > 0 for seconds in found.block)
        assert found.counts[-1] == 32
        assert len(found.counts) == len(found.block) == len(found.stage) == 8
        times = tuple(float(n) for n in found.counts)
        return script.LatencyTable(found.counts, times, (0.0,) * len(times), 1.0, found.depth)

    monkeypatch.setattr(script, "measure_table", measured)
    assert script.main(command) == 0
    printed = capsys.readouterr().out
    assert "latency table" in printed
    assert "best to against" in printed
    content = json.loads(path.read_text())["points"]
    trials = [p for p in content if p["kind"] == "trial"]
    against, best = (p for p in content if p["kind"] == "test")
    assert len(trials) >= 3
    assert best["stages"] == max(trials, key=lambda p: p["map"])["stages"]
    assert best["best_to_against"]["value"] == pytest.approx(best["map"] - against["map"])
    monkeypatch.setattr(script.points, "retrieve", None)  # nothing is measured twice
    assert script.main(command) == 0
    capsys.readouterr()
    assert script.main([*command, "--seed", "3"]) == 2
    assert "other seed" in capsys.readouterr().err
