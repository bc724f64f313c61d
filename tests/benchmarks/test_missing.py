"""The benchmark of missing modalities runs, on a small backbone."""

from __future__ import annotations

import json

import pytest
import torch


@pytest.fixture
def missing(load_benchmark):
    return load_benchmark("missing")


def test_every_case_is_measured(missing, tmp_path, capsys):
    words = ["--backbone", "nano", "--size", "64", "32", "--batch", "7", "--repeats", "3"]
    assert missing.main([*words, "--out", str(tmp_path / "m.json")]) == 0
    cases = json.loads((tmp_path / "m.json").read_text())["cases"]
    assert list(cases) == [
        "all three",
        "two of three",
        "one of three",
        "mixed subsets",
        "one of three, zeros",
    ]
    assert cases["all three"]["ratio"] == 1
    assert cases["mixed subsets"]["modalities"] == pytest.approx(12 / 7), "every subset once"
    assert "goal 2.5" in capsys.readouterr().out


def test_absent_modalities_are_not_computed(missing):
    skip, zeros = (missing.build("nano", (64, 32), "after_backbone", kind) for kind in ("skip", "zeros"))
    rows = []
    for model in (skip, zeros):
        model.backbone.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
        images = {name: torch.randn(7, 3, 64, 32) for name in missing.MODALITIES}
        for there in missing.presence(7).values():
            model(images, present=there)
    assert rows == [21, 14, 7, 12, 21, 21, 21, 21]
