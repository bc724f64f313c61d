"""research/run.py and research/tables.py on a plan of two tiny runs."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slimreid.ablation import runner
from slimreid.config.files import load_config, save_config
from slimreid.errors import ConfigError
from slimreid.evaluation.reports.missing import MissingMatrix
from slimreid.training.loop import train
from support.records import make_record
from support.runs import SMALL, write_set

ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "research" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A plan file that needs data called `tiny`."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("TINY", raising=False)
    monkeypatch.setattr(runner, "run_in_own_process", lambda job: train(job.config, job.run, "auto"))
    folder = tmp_path / "plans"
    folder.mkdir()
    overrides = [*SMALL, "train.epochs=1", "optim.warmup_epochs=0", "data.modalities=[rgb,tir]"]
    save_config(load_config(overrides=overrides), tmp_path, "tiny.yaml")
    (folder / "tiny.yaml").write_text(
        "about: Nothing to learn.\n"
        "needs: {tiny: {what: the tiny set, environment: TINY}}\n"
        "set: {data.manifest: $tiny}\n"
        "missing: true\n"
        "experiments:\n"
        f"  - {{name: sdtps, config: {tmp_path / 'tiny.yaml'}, seeds: [0, 1]}}\n"
        f"  - {{name: plain, config: {tmp_path / 'tiny.yaml'}, seeds: [0], set: {{model.reduction: none,"
        " model.fusion: none}, label: no reduction}\n"
    )
    return folder / "tiny.yaml"


def words(plan, tmp_path, *more):
    return [
        str(plan),
        "--runs",
        str(tmp_path / "runs"),
        "--results",
        str(tmp_path / "results"),
        *map(str, more),
    ]


def test_a_plan_from_data_to_tables(plan, tmp_path, capsys):
    main, tables = script("run").main, script("tables").main
    assert main(words(plan, tmp_path)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "tiny: skipped, it needs the tiny set; give --place tiny=PATH or set TINY" in out
    assert "nothing to run" in out

    write_set(tmp_path / "set")
    place = ("--place", f"tiny={tmp_path / 'set'}")
    assert main(words(plan, tmp_path, *place, "--only", "sdtps-seed1")) == 0
    results = tmp_path / "results" / "tiny"
    assert [path.name for path in results.iterdir()] == ["sdtps-seed1.json"]
    text = (results / "sdtps-seed1.json").read_text()
    assert "--data.manifest $TINY --seed 1" in text
    assert len(json.loads(text)["missing"]["both"]["subsets"]) == 3
    assert str(tmp_path / "set") not in text
    capsys.readouterr()
    assert main(words(plan, tmp_path, *place, "--list")) == 0
    listed = capsys.readouterr().out
    assert listed.count("finished") == 1
    assert listed.count("new") == 2
    assert main(words(plan, tmp_path, *place)) == 0
    assert "3 of 3 results" in capsys.readouterr().out

    folders = ["--plans-folder", str(plan.parent), "--results", str(tmp_path / "results")]
    assert tables([*folders, "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "tiny.md").read_text()
    for part in (
        "Nothing to learn.",
        "| sdtps | 2 |",
        "| no reduction | 1 |",
        "| rgb+tir |",
        "slimreid train",
    ):
        assert part in page
    assert Image.open(tmp_path / "out" / "tiny.png").size[0] > 500
    assert "earlier versions" not in page

    path = results / "plain-seed0.json"
    values = json.loads(path.read_text())
    values["options"]["model.slimming.beta"] = 0.25  # a name that is gone
    path.write_text(json.dumps(values))
    assert main(words(plan, tmp_path, *place, "--list")) == 0
    assert capsys.readouterr().out.count("earlier version") == 1
    assert main(words(plan, tmp_path, *place)) == 0
    assert "plain-seed0: the result of an earlier version is kept" in capsys.readouterr().out
    assert tables([*folders, "--out", str(tmp_path / "out")]) == 0
    assert "1 of these results were made by earlier versions" in (tmp_path / "out" / "tiny.md").read_text()
    (job,) = [job for job in script("run").jobs_of(*_chosen(plan, tmp_path)) if job.name == "plain-seed0"]
    with pytest.raises(ConfigError, match=r"an earlier version with options .*model\.slimming\.beta"):
        runner.job_state(job)
    assert runner.states([job], rerun=True, keep_earlier=True) == ["new"]


def _chosen(plan, tmp_path):
    """What `jobs_of` takes, for the whole plan."""
    run = script("run")
    places = {"tiny": str(tmp_path / "set")}
    return run.read_plan(plan, places), places, run.parse(words(plan, tmp_path))


def test_wrong_use_is_explained(plan, tmp_path, capsys):
    main = script("run").main
    for arguments, message in (
        (["nonsense"], "no plan 'nonsense'; there are "),
        ([str(plan), "--place", "tiny"], "give NAME=PATH"),
        ([str(plan), "--place", "other=x"], "nothing needs 'other'"),
        ([str(plan), "--place", "tiny=nowhere"], "nowhere: no such manifest"),
    ):
        assert main(arguments) in (1, 2)
        assert message in " ".join(capsys.readouterr().err.split())


def test_the_matrix_shows_its_chance_levels_and_gaps():
    matrix = MissingMatrix(
        subsets=(("rgb",), ("rgb", "tir")),
        map=np.array([[0.5, np.nan], [0.25, 0.75]]),
        rank1=np.full((2, 2), 0.5),
        valid_queries=np.ones((2, 2), dtype=np.int64),
        chance=0.1,
        chances=np.array([[0.2, np.nan], [0.15, 0.1]]),
        thresholds=np.full((2, 2), 0.5),
        true_rates=np.full((2, 2), 0.5),
    )
    table = script("tables").missing_table
    record = make_record("a", [0.5] * 6, missing={"both": matrix.to_dict()})
    text = table("a", [record, record], "both")
    assert text.splitlines()[0].endswith("; chance 10.0 to 20.0, complete 10.0")
    assert "| rgb | 50.0 | – |" in text
    level = replace(matrix, chances=np.array([[0.1, np.nan], [0.1, 0.1]]))
    record = make_record("a", [0.5] * 6, missing={"both": level.to_dict()})
    assert table("a", [record], "both").splitlines()[0].endswith("; chance 10.0")


def test_without_results_there_is_no_table(plan, tmp_path, capsys):
    words = ["--plans-folder", str(plan.parent), "--results", str(tmp_path / "none")]
    assert script("tables").main(words) == 0
    assert "tiny: no results yet" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()
