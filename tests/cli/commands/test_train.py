"""`slimreid train` as a person types it."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml

from slimreid.cli.parser import parse_words
from slimreid.compat.demo_options import read_demo_file, read_demo_options
from slimreid.config.files import load_config
from slimreid.errors import ConfigError
from support.commands import run_command
from support.runs import SMALL, write_set


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"))


@pytest.fixture
def config_file(manifest, tmp_path):
    options = {}
    for override in (*SMALL, f"data.manifest={manifest}", "train.epochs=1", "optim.warmup_epochs=0"):
        key, _, value = override.partition("=")
        section, _, name = key.partition(".")
        options.setdefault(section, {})[name] = yaml.safe_load(value)
    options["optim"] = {name: float(value) for name, value in options["optim"].items()}
    options["optim"]["warmup_epochs"] = 0
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(options))
    return path


run = partial(run_command, "train")


def test_train_and_go_on_from_the_command_line(config_file, tmp_path, capsys):
    output = tmp_path / "runs" / "one"
    code, out, err = run("--config", config_file, "--seed", 3, "--out", output, capsys=capsys)
    assert code == 0, err
    for words in ("epoch 1/1", "chosen on", "val mAP", "test mAP", "test rank-1", "model.safetensors"):
        assert words in out
    assert load_config([output / "config.yaml"]).seed == 3
    result = json.loads((output / "result.json").read_text())
    assert f"{100 * result['test']['map']:.1f}" in out

    code, _, err = run("--config", config_file, "--seed", 3, "--out", output, capsys=capsys)
    assert code == 2
    assert "holds a run already; add --resume auto" in " ".join(err.split())
    code, _, err = run("--config", config_file, "--out", output, "--resume", "auto", capsys=capsys)
    assert code == 2
    assert "seed: 3 before, 0 now" in err
    code, out, _ = run(
        "--config", config_file, "--seed", 3, "--out", output, "--resume", "auto", capsys=capsys
    )
    assert code == 0
    assert "test mAP" in out


def test_choice_on_test_is_shown(config_file, tmp_path, capsys):
    arguments = ("--config", config_file, "--train.select_on", "test", "--out", tmp_path / "r")
    code, out, _ = run(*arguments, capsys=capsys)
    assert code == 0
    assert "chosen on the test set" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--train.epohcs", "3"], 2, "unknown option 'train.epohcs'; did you mean 'train.epochs'"),
        (["--data.manifest", "nowhere.csv"], 1, "nowhere.csv: no such manifest"),
        (["--resume", "sometimes"], 2, "give auto, never, or the folder"),
        (["--train.precision", "fp16"], 2, "needs a GPU"),
        (["--model.pretrained", "none.pth"], 1, "none.pth"),
        (["--optim.lr", "1e30"], 1, "not finite in epoch 1"),
        (["--optim.lr", "1e30"], 1, "there is no checkpoint yet"),
    ],
)
def test_mistakes_end_in_one_clear_message(config_file, tmp_path, capsys, arguments, code, message):
    found, out, err = run("--config", config_file, "--out", tmp_path / "r", *arguments, capsys=capsys)
    assert found == code, err
    assert message in " ".join(err.split())
    assert "Traceback" not in out + err


def test_ctrl_c_ends_with_a_clear_line(config_file, tmp_path):
    output = tmp_path / "r"
    command = [sys.executable, "-m", "slimreid", "train", "--config", config_file, "--out", output]
    command += ["--train.epochs", "1000", "--data.workers", "1"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests themselves run in the background, SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while not (output / "checkpoints" / "index.json").exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to workers as well
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped; the last checkpoint is intact, resume with --out" in err
    assert "Traceback" not in err
    assert not list(output.rglob(".*.tmp"))


# ---- the old command line

OLD = """
MODEL:
  TRANSFORMER_TYPE: 'ViT-B-16'
  SIE_CAMERA: True
  SIE_COE: 1.0
  USE_SDTPS: True
  DIST_TRAIN: False
  DEVICE_ID: ('0')
INPUT:
  SIZE_TRAIN: [32, 16]
  PIXEL_MEAN: [0.5, 0.5, 0.5]
  PADDING: 2
DATASETS:
  NAMES: ('RGBNT201')
DATALOADER:
  NUM_INSTANCE: 2
  NUM_WORKERS: 0
SOLVER:
  BASE_LR: 0.00035
  WARMUP_ITERS: 0
  MAX_EPOCHS: 1
  OPTIMIZER_NAME: 'Adam'
  IMS_PER_BATCH: 8
  STEPS_TYPO: 3
"""


@pytest.fixture
def old_file(tmp_path):
    path = tmp_path / "DeMo_SDTPS.yml"
    path.write_text(OLD)
    return path


def test_old_command_line_trains(old_file, manifest, tmp_path, capsys):
    output = tmp_path / "r"
    arguments = ["--demo-config", old_file, "--data.manifest", manifest, "--out", output]
    # The old backbone is large; a small one of ours wins because it is given explicitly.
    arguments += ["--model.backbone", "nano", "MODEL.SDTPS_USE_GUMBEL", "True", "SOLVER.SEED", "7"]
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 0, err
    config = load_config([output / "config.yaml"])
    assert config.model.after_backbone.estimator == "gumbel"
    assert (config.seed, config.model.backbone, config.batch.num_ids) == (7, "nano", 4)
    assert (config.transforms.size, config.model.camera_scale, config.optim.name) == ((32, 16), 1.0, "adam")
    for note in (
        "without effect: MODEL.DIST_TRAIN",
        "without effect: DATASETS.NAMES",
        "unknown: SOLVER.STEPS_TYPO",
    ):
        assert note in out
    run_file = json.loads((output / "run.json").read_text())
    assert run_file["starts"][0]["command"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["MODEL.PROMPT", "True"], "MODEL.PROMPT is True: prompt tuning is not part"),
        (["MODEL.USE_SDTPS"], "'MODEL.USE_SDTPS' has no value"),
        (["MODEL.TRANSFORMER_TYPE", "t2t"], "is not one of ViT-B-16"),
        (["MODEL.HDM", "[1"], "MODEL.HDM: '[1' cannot be read as a value"),
        (["SOLVER.IMS_PER_BATCH", "abc"], "SOLVER.IMS_PER_BATCH is 'abc'; it must be a whole number"),
        (["DATALOADER.NUM_INSTANCE", "null"], "DATALOADER.NUM_INSTANCE is None"),
    ],
)
def test_refused_old_options_are_named(old_file, capsys, pairs, message):
    code, _, err = run("--demo-config", old_file, *pairs, capsys=capsys)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_old_files_that_cannot_be_read_are_named(tmp_path, capsys):
    code, _, err = run("--demo-config", tmp_path / "none.yml", capsys=capsys)
    assert (code, "none.yml: cannot be read" in " ".join(err.split())) == (2, True)
    (tmp_path / "list.yml").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="not a DeMo config"):
        read_demo_file(tmp_path / "list.yml")
    (tmp_path / "bad.yml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"bad\.yml: not YAML"):
        read_demo_file(tmp_path / "bad.yml")
    code, _, err = run("--demo-config", capsys=capsys)
    assert (code, "--demo-config" in err) == (2, True)


def test_old_values_are_read_as_python_does(old_file):
    options = read_demo_file(
        old_file, ["INPUT.SIZE_TRAIN", "(64, 32)", "MODEL.HDM", "False", "SOLVER.MARGIN", "0.2"]
    )
    assert options["DATASETS.NAMES"] == "RGBNT201"
    assert options["MODEL.DEVICE_ID"] == "0"
    assert options["INPUT.SIZE_TRAIN"] == (64, 32)
    assert (options["MODEL.HDM"], options["SOLVER.MARGIN"]) == (False, 0.2)


def test_options_of_ours_win_over_old_pairs_and_files(old_file):
    call = parse_words(["train", f"--demo-config={old_file}", "--out", "RUNS", "SOLVER.SEED", "5"])
    assert (call.options.config.seed, call.options.out) == (5, Path("RUNS"))
    assert (call.options.demo_config, call.options.demo_options) == (old_file, ["SOLVER.SEED", "5"])
    call = parse_words(["train", "--demo-config", str(old_file), "--seed=3", "SOLVER.SEED", "5"])
    assert call.options.config.seed == 3


def test_output_that_is_a_file_is_refused(config_file, tmp_path, capsys):
    (tmp_path / "r").write_text("")
    code, _, err = run("--config", config_file, "--out", tmp_path / "r", capsys=capsys)
    assert (code, "is a file; give the folder of a run" in " ".join(err.split())) == (2, True)


def test_text_is_no_weights(config_file, tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text("# Weights\n")
    arguments = ("--config", config_file, "--out", tmp_path / "r", "--model.pretrained", page)
    code, _, err = run(*arguments, capsys=capsys)
    assert code == 1
    assert "README.md: not a file of weights; give" in " ".join(err.split())
    assert "weights_only" not in err.lower()


@pytest.mark.parametrize(
    ("value", "smoothing"), [("on", 0.1), ("True", 0.1), ("'on'", 0.1), ("off", 0.0), ("False", 0.0)]
)
def test_old_label_smoothing_as_yaml_reads_it(old_file, value, smoothing):
    options = read_demo_file(old_file, ["MODEL.IF_LABELSMOOTH", value])
    assert read_demo_options(options).values["loss.label_smoothing"] == smoothing
