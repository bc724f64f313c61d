"""Scripts and tables of the experiments on the choice of patches and on missing modalities."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from plan_file import read_plan
from selection_tables import selection_table, subsets_table

from slimreid.evaluation.reports.missing import MissingMatrix
from slimreid.runs.measure import run_record
from slimreid.runs.record import read_record, write_record
from slimreid.token_reduction import after_backbone as multimodal
from slimreid.token_reduction import estimators
from slimreid.token_reduction import select as selection
from slimreid.token_reduction.merge import merge_patches
from slimreid.training.loop import train
from support.records import make_record
from support.runs import SMALL, make_config, write_set

ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "research" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def watched_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    manifest = write_set(folder / "set")
    (folder / "set" / "masks").mkdir()
    for path in (folder / "set" / "rgb").iterdir():
        Image.fromarray(np.tril(np.full((32, 16), 255, dtype=np.uint8))).save(
            folder / "set/masks" / path.name
        )
    train(make_config(manifest, "train.watch_selection=true"), folder / "run")
    return folder / "run"


def test_pictures_of_a_watched_run(watched_run, trained_run, tmp_path, capsys):
    words = [str(watched_run), str(trained_run.parent / "run"), "--out", str(tmp_path), "--samples", "1"]
    assert script("selection").main([*words[:1], *words[2:]]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"selection.png", "kept-run.png"}
    assert "on object" in capsys.readouterr().out
    assert script("selection").main([str(trained_run), "--out", str(tmp_path)]) == 1
    assert "watch_selection" in capsys.readouterr().err
    assert script("selection").main([*words[:1], *words[2:], "--stage", "3"]) == 2


def test_guides_of_a_run(trained_run, tmp_path, capsys):
    assert script("guides").main([str(trained_run), "--limit", "3", "--out", str(tmp_path / "g.json")]) == 0
    assert "by chance 50.0" in capsys.readouterr().out
    found = json.loads((tmp_path / "g.json").read_text())
    assert found["shares"]["rgb"]["nir+tir"] == 1.0
    assert script("guides").main([str(tmp_path / "nothing")]) == 1


def test_a_result_keeps_what_became_of_the_choice(watched_run, tmp_path):
    record = run_record(watched_run, name="run")
    write_record(tmp_path / "run.json", record)
    again = read_record(tmp_path / "run.json")
    assert again.selection == record.selection
    assert again.selection["epoch"] == [0, 1, 2]
    assert all(0 < share < 1 for share in again.selection["on_object"])
    table = selection_table({"run": [again]})
    chosen = again.selection["on_object"][again.epoch]
    assert f"| run | {100 * chosen:.1f} |" in table


def test_tables_over_seeds():
    summary = {
        "epoch": [0, 1, 2], "on_object": [0.1, 0.2, 0.4], "chance": [0.3] * 3, "recall": [0.5] * 3,
        "iou": [0.25] * 3, "same": [None, 0.6, 0.9], "kept_share": [0.5] * 3, "gradient": [None, 0.02, 0.001],
        "gradient_max": [None, 0.5, 0.002],
    }  # fmt: skip
    first = make_record("a-seed0", [0.5] * 6, 0, label="a", selection=summary, epoch=1)
    second = make_record("a-seed1", [0.5] * 6, 1, label="a", selection=summary, epoch=2)
    table = selection_table({"a": [first, second], "b": [make_record("b", [0.5] * 6)]})
    assert "| a | 30.0 ± 14.1 | 30.0 ± 0.0 |" in table
    assert "| 60.0 ± 0.0 | 90.0 ± 0.0 | 2.0e-02 | 1.0e-03 | 5.0e-01 |" in table
    assert "| b |" not in table
    assert selection_table({"b": [make_record("b", [0.5] * 6)]}) == ""
    empty = {**summary, "gradient": [None] * 3, "gradient_max": [None] * 3, "on_object": [None] * 3}
    assert "| – | 30.0 |" in selection_table({"a": [replace(first, selection=empty)]})


def test_table_of_subsets():
    subsets = (("rgb",), ("tir",), ("rgb", "tir"))
    valid = np.ones((3, 3), dtype=np.int64)
    records = []
    for seed, top in enumerate((0.5, 0.7)):
        figures = np.full((3, 3), 0.1)
        figures[0, 0], figures[2, 2] = 0.2, top
        matrix = MissingMatrix(
            subsets, figures, figures, valid, 0.05, np.full((3, 3), 0.05), figures, figures
        )
        records.append(
            make_record(f"r{seed}", [0.5] * 6, seed, label="r", missing={"original": matrix.to_dict()})
        )
    table = subsets_table({"r": records, "none": [make_record("n", [0.5] * 6)]}, "both")
    assert "| model | rgb | tir | rgb+tir | different (mean) |" in table
    assert "| r | 20.0 ± 0.0 | 10.0 ± 0.0 | 60.0 ± 14.1 | 10.0 ± 0.0 |" in table
    assert "chance 5.0" in table
    assert "| none |" not in table


@pytest.mark.parametrize("name", ["selection", "missing"])
def test_shipped_plans_are_good(name, monkeypatch, tmp_path):
    from slimreid.config.files import load_config

    monkeypatch.chdir(ROOT)
    plan = read_plan(ROOT / "research" / "plans" / f"{name}.yaml", {"world": str(tmp_path)})
    options = []
    for experiment in plan.experiments:
        changes = [f"{key}={value}" for key, value in experiment.changes.items()]
        options.append(load_config([experiment.config], changes))
    assert len({repr(config) for config in options}) == len(options), "no two are the same"


def test_the_old_mask_exists_in_the_experiment_alone():
    old = script("old_mask")
    before = multimodal.merge_patches, selection.decide, estimators.gumbel_noise
    with old.as_it_was(old.ARMS[0]):
        assert multimodal.merge_patches is old.old_merge
    assert (multimodal.merge_patches, selection.decide, estimators.gumbel_noise) == before
    torch.manual_seed(0)
    kept, logits = torch.randn(2, 5, 4), torch.randn(2, 5, 3)
    decision = torch.ones(2, 5, requires_grad=True)
    grads = []
    for merge in (merge_patches, old.old_merge):
        merged, weights = merge(kept, logits, decision=decision)
        grads.append((weights, torch.autograd.grad(merged.square().sum(), decision)[0]))
    torch.testing.assert_close(grads[0][0], grads[1][0])
    torch.testing.assert_close(1e10 * grads[0][1], grads[1][1])


def test_noise_is_clipped_where_the_arm_says():
    old = script("old_mask")
    clipped = next(arm for arm in old.ARMS if arm.clip)
    scores = torch.zeros(4, 1000)
    with old.as_it_was(clipped):
        assert float(estimators.gumbel_noise(scores).abs().max()) == clipped.clip
    assert float(estimators.gumbel_noise(scores).abs().max()) > 2


def test_the_explosion_is_written_down(tmp_path, monkeypatch):
    old = script("old_mask")
    monkeypatch.setattr(old, "ARMS", (old.ARMS[0], old.ARMS[3]))
    manifest = write_set(tmp_path / "set")
    words = ["--epochs", "2", "--runs", tmp_path / "runs", "--results", tmp_path / "out", "--world", manifest]
    changes = [f"--set={change}" for change in SMALL if "epochs" not in change]
    assert old.main([*map(str, words), *changes]) == 0
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out/old_mask").iterdir()}
    assert set(found) == {"old-tau1", "log-tau1"}
    largest = {name: max(n or 0 for n in run["gradient"]) for name, run in found.items()}
    assert largest["old-tau1"] > 1e4 * largest["log-tau1"]
    assert "1e10 mask, τ 1" in (tmp_path / "out/old_mask.md").read_text()
    assert (tmp_path / "out/old_mask.png").is_file()
    monkeypatch.setattr(old, "run_arm", lambda *_: pytest.fail("finished runs are skipped"))
    assert old.main([*map(str, words), *changes]) == 0


def test_score_terms_are_compared_with_the_mask(watched_run, trained_run, tmp_path, capsys):
    terms = script("score_terms")
    assert terms.main([str(watched_run), "--limit", "3", "--out", str(tmp_path / "s.json")]) == 0
    found = json.loads((tmp_path / "s.json").read_text())
    assert {"self", "cross", "self, centred", "learned", "contrast", "cross_contrast"} < set(found)
    assert all(0 <= value <= 1 for figures in found.values() for value in figures.values())
    assert "attention, block 4" in capsys.readouterr().out
    assert terms.main([str(trained_run)]) == 1
    assert "without a mask" in capsys.readouterr().err


def test_area_under_the_curve_equals_the_loop():
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 5, 20).astype(float), rng.random(20) < 0.4
    pairs = [(a, b) for a in scores[positive] for b in scores[~positive]]
    expected = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert script("score_terms").area_under_curve(scores, positive) == pytest.approx(expected)
