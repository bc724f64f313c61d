"""`slimreid compare` and `slimreid ablate` as a person types them."""

import json
import shutil

import pytest
from PIL import Image

from slimreid.ablation import runner
from slimreid.cli import console as console_module
from slimreid.cli.app import main
from slimreid.config.files import load_config, save_config
from slimreid.errors import TrainingError
from slimreid.runs.record import read_record
from slimreid.training.loop import train
from support.commands import run_command as run
from support.runs import SMALL, make_config, write_set


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two settings, one with two seeds."""
    folder = tmp_path_factory.mktemp("compare")
    manifest = write_set(folder / "set")
    for name, options in {
        "base-0": ("model.reduction=none", "model.fusion=none", "seed=0"),
        "sdtps-0": ("seed=0",),
        "sdtps-1": ("seed=1", "train.select_on=test"),
    }.items():
        train(make_config(manifest, "train.epochs=1", "optim.warmup_epochs=0", *options), folder / name)
    return folder


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setattr(console_module.console, "width", 200, raising=False)


def test_one_table_over_runs(runs, tmp_path, capsys):
    out = tmp_path / "t.json"
    names = [runs / name for name in ("base-0", "sdtps-0", "sdtps-1")]
    code, printed, err = run("compare", *names, "--repeats", "1", "--out", out, capsys=capsys)
    assert code == 0, err
    for words in ("base-0", "sdtps", "Δ mAP", "images/s", "GFLOPs", "options that differ", "model.fusion"):
        assert words in printed
    values = json.loads(out.read_text())
    base, _, *_ = rows = values["rows"]
    result = json.loads((runs / "base-0" / "result.json").read_text())
    assert base["map"]["mean"] == pytest.approx(result["test"]["map"])
    assert base["images_per_second"] > 0
    assert base["parameters"] < rows[1]["parameters"]
    # select_on differs, so these two are not one row
    assert [row["label"] for row in rows] == ["base-0", "sdtps-0", "sdtps-1"]
    assert [row["on_test"] for row in rows] == [False, False, True]
    assert "† the checkpoint was chosen on the test set" in printed
    assert (runs / "base-0" / "evaluation" / "evaluation.json").is_file()


def test_a_narrow_terminal_gets_two_tables(runs, capsys, monkeypatch):
    monkeypatch.setattr(console_module.console, "width", 90, raising=False)
    code, printed, _ = run("compare", runs / "base-0", runs / "sdtps-0", "--skip-speed", capsys=capsys)
    assert code == 0
    assert printed.count("┃ model") == 2
    assert max(map(len, printed.splitlines()[:12])) <= 90


def test_an_old_evaluation_is_made_again(runs, tmp_path, capsys):
    run_ = tmp_path / "sdtps-0"
    shutil.copytree(runs / "sdtps-0", run_)
    assert run("compare", run_, "--skip-speed", capsys=capsys)[0] == 0
    path = run_ / "evaluation" / "evaluation.json"
    values = json.loads(path.read_text())
    right = values["features"]["both"]["map"]
    values["key"], values["features"]["both"]["map"] = "other", None
    path.write_text(json.dumps(values))
    assert run("compare", run_, "--skip-speed", capsys=capsys)[0] == 0
    assert json.loads(path.read_text())["features"]["both"]["map"] == right


def test_other_data_is_refused(runs, tmp_path, capsys):
    other = write_set(tmp_path / "other", val=False)
    rows = other.read_text().splitlines()
    other.write_text("\n".join(rows[:-2]) + "\n")  # one image less to find
    config = make_config(other, "train.epochs=1", "optim.warmup_epochs=0", "train.select_on=last")
    train(config, tmp_path / "run")
    code, _, err = run("compare", runs / "base-0", tmp_path / "run", "--skip-speed", capsys=capsys)
    assert code == 1
    assert "were not evaluated on the same data" in err
    assert "slimreid evaluate" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["RUN", "RUN"], 2, "is given twice"),
        (["nowhere"], 1, "nowhere: no such model"),
        (["RUN", "--out", "t.pdf"], 2, ".md, .csv or .json"),
        (["RUN", "--feature", "slimmed"], 2, "no feature 'slimmed'"),
        (["RUN", "--batch", "0"], 2, "at least 1"),
        ([], 2, "required"),
    ],
)
def test_wrong_use_is_explained(runs, words, code, message, capsys):
    words = [runs / "base-0" if word == "RUN" else word for word in words]
    found, _, err = run("compare", *words, capsys=capsys)
    assert found == code
    assert message in err


@pytest.fixture
def config_file(runs, tmp_path):
    overrides = [*SMALL, f"data.manifest={(runs / 'set').as_posix()}", "train.epochs=1"]
    return save_config(load_config(overrides=[*overrides, "optim.warmup_epochs=0"]), tmp_path)


@pytest.fixture
def quick(monkeypatch):
    """Runs in this process, as starting another takes seconds."""
    started = []

    def start(job):
        started.append(job.name)
        if job.config.optim.lr > 1:
            raise TrainingError("the loss is not finite")
        train(job.config, job.run, "auto")

    monkeypatch.setattr(runner, "run_in_own_process", start)
    return started


def test_an_ablation_from_beginning_to_end(config_file, tmp_path, quick, capsys):
    output = tmp_path / "ab"
    words = ["ablate", "--config", config_file, "--grid", "model.after_backbone.keep_ratio=0.3"]
    words += ["--grid", "optim.lr=1e-3,5.0", "--seeds", "0,1", "--out", output]
    code, printed, err = run(*words, capsys=capsys)
    assert code == 1, err  # half of the runs cannot be done
    assert "2 settings × 2 seeds = 4 runs" in printed
    assert "2 of 4 runs failed" in printed
    assert "the loss is not finite" in printed
    assert "keep_ratio=0.3, lr=1e-3" in printed
    assert "images/s" in printed
    assert len(list((output / "results").glob("*.json"))) == 2
    for name in ("ablation.md", "ablation.csv", "ablation.json", "base.yaml"):
        assert (output / name).is_file()
    assert Image.open(output / "ablation.png").size[0] > 500
    done = len(quick)
    run(*words, "--skip-speed", capsys=capsys)
    assert quick[done:] == [name for name in quick[:done] if "lr=5.0" in name]  # only what had failed

    changed = [*words, "--optim.weight_decay", "0.5"]
    before = (output / "base.yaml").read_text()
    code, _, err = run(*changed, capsys=capsys)
    assert code == 2
    assert "optim.weight_decay: 0.0001 before, 0.5 now" in err
    assert (output / "base.yaml").read_text() == before


def test_a_feature_that_will_not_exist_is_refused_before_any_run(config_file, tmp_path, quick, capsys):
    words = ["ablate", "--config", config_file, "--out", tmp_path / "ab", "--feature", "slimmed"]
    code, _, err = run(*words, "--grid", "model.fusion=mean,hdm", "--seeds", "0", capsys=capsys)
    assert code == 2
    assert "'fusion=hdm' has no such feature, only original, fused, both" in " ".join(err.split())
    assert not (tmp_path / "ab").exists(), "nothing is left of what did not start"
    assert quick == []


def test_ctrl_c_says_how_to_go_on(config_file, tmp_path, monkeypatch, capsys, caplog):
    def start(job):
        raise KeyboardInterrupt

    caplog.set_level("INFO")
    monkeypatch.setattr(runner, "run_in_own_process", start)
    words = [
        "ablate",
        "--config",
        config_file,
        "--grid",
        "model.after_backbone.keep_ratio=0.3",
        "--out",
        tmp_path / "a",
    ]
    code, _, _ = run(*words, capsys=capsys)
    assert code == 130
    assert "0 of 3 runs are finished, run the same command to continue" in caplog.text


@pytest.mark.parametrize(("words", "wanted"), [([], False), (["--missing", "all"], True)])
def test_an_ablation_evaluates_subsets_of_the_modalities_if_asked(
    words, wanted, config_file, tmp_path, monkeypatch, capsys
):
    asked = []

    def start(job):
        asked.append(job.experiment.missing)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_in_own_process", start)
    grid = ["--grid", "model.after_backbone.keep_ratio=0.3", "--seeds", "0", "--out", tmp_path / "a"]
    run("ablate", "--config", config_file, *grid, *words, capsys=capsys)
    assert asked == [wanted]


def test_runs_that_lost_different_samples_are_compared_without_pairing(tmp_path, quick, capsys):
    manifest = write_set(tmp_path / "set")
    (tmp_path / "set" / "tir" / "9_1_0.png").write_bytes(b"broken")
    overrides = [*SMALL, f"data.manifest={manifest.as_posix()}", "train.epochs=1", "optim.warmup_epochs=0"]
    overrides.append("data.on_error=skip")
    config = save_config(load_config(overrides=overrides), tmp_path)
    words = ["ablate", "--config", config, "--grid", "data.modalities=[rgb],[tir]", "--seeds", "0"]
    code, printed, err = run(*words, "--out", tmp_path / "ab", "--skip-speed", capsys=capsys)
    assert code == 0, err
    assert "no differences:" in printed
    assert "modalities=[tir]" in printed


def test_a_run_in_its_own_process(config_file, tmp_path, capsys):
    """The real thing once: two processes of ours, and a log."""
    grid = ["--grid", "model.after_backbone.keep_ratio=0.3", "--seeds", "4"]
    where = ["--out", str(tmp_path / "ab"), "--skip-speed"]
    assert main(["ablate", "--config", str(config_file), *grid, *where]) == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "ab" / "runs" / "keep_ratio=0.3-seed4"
    log = (folder / "log.txt").read_text()
    assert log.count("$ slimreid ") == 2
    record = read_record(tmp_path / "ab" / "results" / "keep_ratio=0.3-seed4.json")
    assert record.seed == 4
    assert f"mAP {100 * record.figures().map:.1f}" in printed


def test_all_models_on_other_data(runs, tmp_path, capsys):
    other = write_set(tmp_path / "night", missing=True)
    out = tmp_path / "t.json"
    names = [runs / "base-0", runs / "sdtps-0"]
    code, printed, err = run("compare", *names, "--data", other, "--skip-speed", "--out", out, capsys=capsys)
    assert code == 0, err
    assert "night: 12 queries" in printed
    assert json.loads(out.read_text())["data"] == "night"
    assert [(name / "evaluation-night" / "evaluation.json").is_file() for name in names] == [True, True]


def test_evaluations_are_compared_as_they_are_with_and_without_their_models(runs, tmp_path, capsys):
    for name in ("base-0", "sdtps-0"):
        shutil.copytree(runs / name, tmp_path / name)
        assert run("evaluate", tmp_path / name, "--workers", "0", capsys=capsys)[0] == 0
    files = [tmp_path / "base-0" / "evaluation" / "evaluation.json", tmp_path / "sdtps-0" / "evaluation"]
    out = tmp_path / "t.json"
    code, printed, err = run("compare", *files, "--repeats", "1", "--out", out, capsys=capsys)
    assert code == 0, err
    rows = json.loads(out.read_text())["rows"]
    assert [row["label"] for row in rows] == ["base-0", "sdtps-0"]
    assert rows[1]["difference"] is not None
    assert rows[0]["gflops"] > 0
    assert rows[0]["images_per_second"] > 0
    assert "model.fusion" in printed
    for name in ("base-0", "sdtps-0"):
        (tmp_path / name / "model.safetensors").unlink()
    code, printed, err = run("compare", *files, "--out", out, capsys=capsys)
    assert code == 0, err
    bare = json.loads(out.read_text())["rows"]
    assert [row["map"] for row in bare] == [row["map"] for row in rows]
    assert bare[0]["gflops"] is None
    assert "–" in printed


def test_an_evaluation_that_no_longer_holds_is_said(runs, tmp_path, capsys, caplog):
    run_ = shutil.copytree(runs / "sdtps-0", tmp_path / "sdtps-0")
    data = write_set(tmp_path / "site")
    assert run("evaluate", run_, "--data", data, "--workers", "0", capsys=capsys)[0] == 0
    place = run_ / "evaluation-site"
    assert run("compare", place, "--skip-speed", capsys=capsys)[0] == 0
    assert "changed" not in caplog.text
    lines = data.read_text().splitlines()
    data.write_text("\n".join(lines[:-1]) + "\n")
    assert run("compare", place, "--skip-speed", capsys=capsys)[0] == 0
    assert "the data has changed since" in caplog.text
    code, _, err = run("compare", place, "--data", data, capsys=capsys)
    assert code == 2
    assert "measured already" in err
