"""Two gloo processes against one: same losses, same gradients, same run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.training.distributed.processes import Processes, gather_rows, join_processes
from slimreid.training.loop import train
from support.models import write_random_model
from support.runs import make_config, read_metrics, write_set
from support.two_process_driver import RESUMED, one_update

RELATIVE = 1e-6
"""Tolerance in float64 (the losses themselves are float32): of losses, and of every gradient tensor
against its largest entry."""
RELATIVE_FP32 = 1e-5
"""Tolerance in float32: of losses, and of the whole gradient against its norm."""

SYNCED = {
    "sdtps": ["set"],
    "ratio": [
        "set_missing",
        "model.after_backbone.estimator=binary_concrete",
        "model.after_backbone.noise=false",
        "model.after_backbone.ratio_loss_weight=3",
    ],
    "split": ["set_missing", "model.heads=split", "model.global_local=true", "model.camera_embedding=true"],
    "zeros": ["set_missing", "model.missing=zeros", "loss.identity_weight=0", "loss.metric=triplet_margin"],
    "atmoe": [
        "set_missing",
        "model.backbone=vit_tiny",
        "model.reduction=none",
        "model.fusion=hdm_atmoe",
        "transforms.height=16",
    ],
    "followed": ["set_missing", "train.teacher=FOLDER/teacher", "loss.distill_weight=3"],
    "related": [
        "set_missing",
        "train.teacher=FOLDER/teacher",
        "train.init_from=FOLDER/teacher",
        "model.reduction=in_backbone",
        "loss.distill_weight=3",
        "loss.distill=relation",
        "loss.identity_weight=0",
        "loss.metric_weight=0",
    ],
    "averaged": [
        "set_missing",
        "train.teacher=average",
        "optim.ema=0.9",
        "model.reduction=in_backbone",
        "loss.distill_weight=3",
    ],
    # With this seed the first batch has no tir, and the second, after which gradients are exchanged, nothing else.
    "dropped": [
        "set",
        "seed=9",
        "transforms.modality_dropout=0.5",
        "optim.accumulate=2",
        "model.heads=split",
        "model.global_local=true",
    ],
    "accumulated": [
        "set",
        "optim.accumulate=2",
        "optim.freeze_backbone=true",
        "model.reduction=none",
        "model.fusion=none",
    ],
}
FP32 = {"fp32": ["set"], "fp32_split": ["set_missing", "model.heads=split"]}
LONE = Processes(0, 1, torch.device("cpu"))


def placed(folder, options):
    """Options with the place of the teacher."""
    return [option.replace("FOLDER", folder.as_posix()) for option in options]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    write_set(folder / "set")
    write_set(folder / "set_missing", missing=True)
    theirs = ("model.reduction=none", "model.fusion=mean")
    write_random_model(folder / "teacher", folder / "set_missing" / "manifest.csv", *theirs, seed=5)
    cases = {name: placed(folder, options) for name, options in (SYNCED | FP32).items()}
    (folder / "cases.json").write_text(json.dumps(cases))
    script = Path(__file__).parents[2] / "support" / "two_process_driver.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, script, folder], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, done


def close(found, expected, name):
    scale = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= RELATIVE * max(scale, 1e-6), name


@pytest.mark.parametrize("name", SYNCED)
def test_two_processes_learn_as_one_with_the_global_batch(pair, name):
    folder, _ = pair
    dataset, *overrides = placed(folder, SYNCED[name])
    config = make_config(folder / dataset / "manifest.csv", *overrides, "train.threads=1")
    losses, gradients, buffers = one_update(config, LONE)
    assert gradients
    for rank in (0, 1):
        assert json.loads((folder / f"{name}_{rank}.json").read_text()) == pytest.approx(losses, rel=RELATIVE)
        found = load_file(folder / f"{name}_{rank}.safetensors")
        assert {n.removeprefix("grad.") for n in found if n.startswith("grad.")} >= set(gradients)
        for key, value in gradients.items():
            close(found[f"grad.{key}"], value, key)
        for key, value in buffers.items():
            close(found[f"buffer.{key}"], value, key)


@pytest.mark.parametrize("name", FP32)
def test_two_processes_learn_as_one_in_single_precision(pair, name):
    folder, _ = pair
    dataset, *overrides = FP32[name]
    config = make_config(folder / dataset / "manifest.csv", *overrides, "train.threads=1")
    losses, gradients, _ = one_update(config, LONE, torch.float32)
    assert json.loads((folder / f"{name}_1.json").read_text()) == pytest.approx(losses, rel=RELATIVE_FP32)
    found = load_file(folder / f"{name}_1.safetensors")
    whole = torch.cat([value.flatten() for value in gradients.values()])
    other = torch.cat([found[f"grad.{key}"].flatten() for key in gradients])
    assert float((whole - other).norm() / whole.norm()) <= RELATIVE_FP32


def test_two_processes_leave_the_same_modalities_out(pair):
    """Heads of all modalities learn, each from the one of the two batches that has its modality."""
    folder, _ = pair
    found = load_file(folder / "dropped_1.safetensors")
    for name in ("rgb", "nir", "tir"):
        assert found[f"grad.heads.original_{name}.classifier.weight"].any()


def test_whole_run_in_two_processes(pair, tmp_path):
    folder, done = pair
    train(make_config(folder / "set" / "manifest.csv", "train.threads=1"), tmp_path / "one")
    two, one = (read_metrics(run, "epoch") for run in (folder / "run", tmp_path / "one"))
    assert len(two) == len(one) == 2
    for a, b in zip(two, one, strict=True):
        assert a["train"]["total"] == pytest.approx(
            b["train"]["total"], rel=1e-3
        )  # rounding grows over updates
        assert a["val"].keys() == b["val"].keys()
    assert len(done.stdout.split("epoch 1/2")) == 2, "only the main process shows progress"
    assert len(re.findall("test mAP", done.stdout)) == 1
    assert (
        json.loads((folder / "run" / "run.json").read_text())["starts"][0]["surroundings"]["processes"] == 2
    )
    assert len(list((folder / "run" / "tensorboard").iterdir())) == 1, "only the main process writes"


@pytest.mark.parametrize("run", RESUMED)
def test_two_processes_go_on_exactly(pair, run):
    folder, _ = pair
    for name in ("model.safetensors", "metrics.jsonl", "checkpoints/epoch_0002/training.safetensors"):
        assert (folder / f"{run}_again" / name).read_bytes() == (folder / run / name).read_bytes(), name


def test_a_lone_process_needs_no_messages():
    rows = torch.rand(3, 2, requires_grad=True)
    assert gather_rows(rows) is rows
    assert join_processes() == LONE
    assert LONE.main


def test_identities_must_divide_over_processes(tmp_path):
    config = make_config(write_set(tmp_path), "batch.num_ids=3")
    with pytest.raises(ConfigError, match="does not divide over 2 processes"):
        train_loader(config, None, 0, 2)
