"""A whole run of a model that is slimmed inside its backbone."""

from __future__ import annotations

import pytest
import torch
from run_cases import make_config, write_set

import slimreid
from slimreid.errors import ConfigError
from slimreid.models.inside import InsideSlimmer
from slimreid.training.trainer import train

INSIDE = (
    "model.slimming.where=inside",
    "model.slimming.keep_warmup_epochs=1",
    "model.slimming.estimator=soft_topk",
    "model.slimming.soft_keys=true",
)


def test_a_run_sets_the_epoch_and_its_model_can_be_loaded(tmp_path, monkeypatch):
    epochs, kept = [], []
    original = InsideSlimmer.set_epoch

    def watched(self, epoch):
        original(self, epoch)
        epochs.append(epoch)
        kept.append(self.train().counts(8))

    monkeypatch.setattr(InsideSlimmer, "set_epoch", watched)
    manifest = write_set(tmp_path / "data", missing=True)
    train(make_config(manifest, *INSIDE), tmp_path / "run")
    assert epochs == [0, 1]
    assert kept == [(8, 8), (4, 2)]
    model = slimreid.load(tmp_path / "run").model.eval()
    assert model.inside.options.where == "inside"
    out = model({"rgb": torch.zeros(2, 3, 32, 16)}, torch.zeros(2, dtype=torch.int64), with_slimmed=True)
    assert out.slimmed.selections[-1].index.shape == (2, 3, 2)


def test_shrinking_must_end_before_training_does(tmp_path):
    with pytest.raises(ConfigError, match="keep_warmup_epochs 2 leaves no epoch"):
        make_config(tmp_path, "model.slimming.where=inside", "model.slimming.keep_warmup_epochs=2")
