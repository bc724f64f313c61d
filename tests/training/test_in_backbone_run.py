"""A whole run of a model with token reduction in its backbone."""

from __future__ import annotations

import torch

import slimreid
from slimreid.training.loop import train
from support.runs import make_config, write_set

OPTIONS = ("model.reduction=in_backbone", "model.in_backbone.schedule=[[0.25, 0.5], [0.5, 0.25]]")


def test_a_run_with_missing_modalities_gives_a_model_that_can_be_loaded(tmp_path):
    manifest = write_set(tmp_path / "data", missing=True)
    train(make_config(manifest, *OPTIONS), tmp_path / "run")
    model = slimreid.load(tmp_path / "run").model.eval()
    assert model.in_backbone.options.schedule == ((0.25, 0.5), (0.5, 0.25))
    out = model({"rgb": torch.zeros(2, 3, 32, 16)}, torch.zeros(2, dtype=torch.int64), with_reduced=True)
    assert [s.index.shape for s in out.reduced.selections] == [(2, 3, 4), (2, 3, 2)]
    assert (out.reduced.size[:, 0].sum(-1) == 8).all(), "every patch is in some token"
