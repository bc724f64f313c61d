"""Runs that cannot go on: they say why, and nothing half-written is left."""

import logging
import math
import os
import resource

import pytest
import torch

from slimreid.errors import DataError, TrainingError
from slimreid.runs.folder import RunFolder
from slimreid.training import loop as trainer_module
from slimreid.training import optimizer
from slimreid.training.callbacks.base import Callback
from slimreid.training.checkpoint.store import CheckpointStore
from slimreid.training.distributed.failures import explained
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from support.runs import full_disk, make_config, weights, write_set

# ---- ways to fail


def test_loss_that_is_not_finite_stops_with_step_losses_and_samples(manifest, tmp_path, monkeypatch):
    monkeypatch.setattr(optimizer, "lr_at", lambda lr, epoch, *_: lr * (1e30 if epoch >= 1 else 1))
    with pytest.raises(TrainingError) as caught:
        train(make_config(manifest), tmp_path)
    message = str(caught.value)
    assert "not finite in epoch 2, step 5: original/identity" in message
    assert "total nan" in message
    assert message.count(".png") == 8 * 3, "every file of the batch is named"
    assert str(manifest.parent / "rgb") in message
    assert CheckpointStore(RunFolder(tmp_path)).last() == tmp_path / "checkpoints" / "epoch_0001"
    assert all(bool(w.isfinite().all()) for w in weights(tmp_path, 1).values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """The very last update of an epoch may spoil them, when there is no further loss to see it by."""
    manifest = write_set(tmp_path / "set", val=False)
    learners = []

    def remember(*arguments, **options):
        learners.append(Learner(*arguments, **options))
        return learners[-1]

    def spoil():
        with torch.no_grad():
            learners[0].model.backbone.class_token.fill_(math.inf)

    monkeypatch.setattr(trainer_module, "Learner", remember)
    with pytest.raises(TrainingError, match=r"'backbone\.class_token' is no longer finite"):
        train(make_config(manifest, "train.select_on=last"), tmp_path / "r", callbacks=[AtStep(6, spoil)])
    assert CheckpointStore(RunFolder(tmp_path / "r")).last().name == "epoch_0001"


class AtStep(Callback):
    """Does something after an update."""

    def __init__(self, step, action):
        self.at, self.action = step, action

    def step(self, report):
        if report.step == self.at:
            self.action()


def no_leftovers(folder):
    return not [p for p in folder.rglob("*") if p.name.endswith(".tmp")]


def test_a_write_refused_by_the_system_ends_with_a_clear_line(manifest, tmp_path):
    """The kernel refuses: files of this process may not grow beyond 100 kB after the first epoch."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = AtStep(4, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1])))
    try:
        with pytest.raises(TrainingError) as caught:
            train(make_config(manifest), tmp_path, callbacks=[limit])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "writing the checkpoint of epoch 2: File too large" in str(caught.value)
    assert "resume with --resume auto" in str(caught.value)
    assert CheckpointStore(RunFolder(tmp_path)).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)


@pytest.mark.parametrize("number", [1, 5])
def test_full_disk_ends_with_a_clear_line_and_can_be_gone_on_from(
    plain, manifest, tmp_path, monkeypatch, number
):
    with monkeypatch.context() as patch:
        disk = AtStep(4, lambda: patch.setattr(os, "fsync", full_disk(number)))
        with pytest.raises(TrainingError, match=r"epoch 2: No space left on device.*; .*free some space"):
            train(make_config(manifest), tmp_path, callbacks=[disk])
    assert CheckpointStore(RunFolder(tmp_path)).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)
    train(make_config(manifest), tmp_path, "auto")
    assert (tmp_path / "metrics.jsonl").read_bytes() == (plain[0] / "metrics.jsonl").read_bytes()


def test_exhausted_memory_ends_with_a_clear_line(manifest, tmp_path):
    greedy = AtStep(4, lambda: torch.empty(2**58))  # torch's own error, not an imitation
    with pytest.raises(TrainingError, match=r"epoch 2, update 2: out of memory; .* Lower batch\.num_ids"):
        train(make_config(manifest), tmp_path, callbacks=[greedy])
    assert CheckpointStore(RunFolder(tmp_path)).last().name == "epoch_0001"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_memory_errors_are_recognised(error):
    with pytest.raises(TrainingError, match="here: out of memory"), explained(lambda: "here", lambda: True):
        raise error


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), BrokenPipeError(), KeyError("x"), KeyboardInterrupt()]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)), explained(lambda: "here", lambda: True):
        raise error


def test_interruption_leaves_the_last_checkpoint(manifest, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_config(manifest), tmp_path, callbacks=[AtStep(5, interrupt)])
    assert CheckpointStore(RunFolder(tmp_path)).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)


def test_broken_image_stops_the_run_or_is_dropped_and_listed(tmp_path, caplog):
    manifest = write_set(tmp_path / "set")
    (tmp_path / "set" / "nir" / "2_1_0.png").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"2_1_0\.png"):
        train(make_config(manifest), tmp_path / "r")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(make_config(manifest, "data.on_error=skip"), tmp_path / "s")
    assert "1 of 24 samples dropped" in caplog.records[-1].getMessage()
