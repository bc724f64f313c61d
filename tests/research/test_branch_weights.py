"""research/branch_weights.py: its figures are those of an evaluation where they must be."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from slimreid.evaluation.reports.evaluate import evaluate_model
from slimreid.inference.load import load
from support.models import write_random_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("branch_weights", ROOT / "research" / "branch_weights.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_of_0_1_and_infinity_are_the_kinds_of_features(script, trained_run, tmp_path, capsys):
    out = tmp_path / "weights.json"
    assert script.main([str(trained_run), "--out", str(out)]) == 0
    assert "gain over all runs" in capsys.readouterr().out
    found = json.loads(out.read_text())
    (run,) = found["runs"].values()
    features = evaluate_model(load(trained_run)).features
    for name, kind in (("original", "original"), ("second", "slimmed"), ("one", "both")):
        assert run["test"][name] == pytest.approx(features[kind].result.map, abs=1e-6)
    best = run["weights"][run["val"].index(max(run["val"]))]
    assert run["chosen"] == best
    gain = run["test"]["chosen"] - run["test"]["one"]
    assert found["gain"]["value"] == pytest.approx(gain)


def test_a_model_of_one_branch_is_refused(script, trained_run, tmp_path, capsys):
    manifest = trained_run.parent / "set" / "manifest.csv"
    write_random_model(tmp_path, manifest, "model.reduction=none", "model.fusion=none")
    assert script.main([str(tmp_path)]) == 2
    assert "no second branch" in capsys.readouterr().err
