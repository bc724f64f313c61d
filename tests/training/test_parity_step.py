"""One training step of the earlier implementation: its loss, its gradients, and what Adam makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from slimreid.backbones.weight_conversion import convert_state_dict
from slimreid.compat.demo import convert_demo_state, load_demo_checkpoint
from slimreid.compat.demo_options import read_demo_options
from slimreid.config import LossConfig, OptimConfig
from slimreid.models.reid_model import ReIDModel
from slimreid.training.losses import ReIDLoss
from slimreid.training.optimizer import make_optimizer
from support.golden import load_golden

OLD_MODALITIES = {"rgb": "RGB", "nir": "NI", "tir": "TI"}
TOWER = "BACKBONE.base."


def old_names(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Old parameter name -> ours, by the tables with which checkpoints are converted."""
    tower = {key.removeprefix(TOWER): value for key, value in state.items() if key.startswith(TOWER)}
    names = {"BACKBONE.cv_embed": "backbone.camera_embedding"}
    for new, (old, *more) in convert_state_dict(tower).sources.items():
        assert not more, f"'{new}' is made of several tensors"
        names[TOWER + old] = f"backbone.{new}"
    for key, value in state.items():
        if not key.startswith("BACKBONE."):
            (names[key],), _ = convert_demo_state({key: value})
    return names


@pytest.fixture(params=["demo_sdtps", "demo_baseline"])
def golden(request) -> dict[str, Any]:
    return load_golden(request.param)


@pytest.fixture
def model(golden) -> ReIDModel:
    options = {**golden["options"], "INPUT.SIZE_TRAIN": golden["image_size"]}
    model = load_demo_checkpoint(golden["state_dict"], options, golden["num_classes"], golden["num_cameras"])
    return model.train()


def losses_of(model: ReIDModel, golden: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Forward pass and losses, with the weights that the old options say."""
    values = read_demo_options(golden["options"]).values
    config = LossConfig(**{k.removeprefix("loss."): v for k, v in values.items() if k.startswith("loss.")})
    images = {
        ours: golden["images_int8"][old] * golden["image_scale"] for ours, old in OLD_MODALITIES.items()
    }
    return ReIDLoss(config, model.branch_weights)(model(images, golden["cam_label"]), golden["label"])


def test_loss_and_every_gradient_are_the_golden_ones(model, golden):
    total = losses_of(model, golden)["total"]
    assert float(total.detach()) == pytest.approx(golden["train"]["loss"], rel=1e-4)
    total.backward()
    names = old_names(golden["state_dict"])
    parameters = dict(model.named_parameters())
    checked = set()
    for old, norm in golden["train"]["grad_norm"].items():
        gradient = parameters[names[old]].grad
        assert gradient is not None, old
        assert float(gradient.norm()) == pytest.approx(norm, rel=1e-4, abs=1e-6), old
        checked.add(names[old])
    left = {name for name, p in parameters.items() if p.requires_grad} - checked
    assert not left, f"no golden gradient for {left}"


def test_one_step_of_the_old_recipe_is_plain_adam(model, golden):
    losses_of(model, golden)["total"].backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    lr, tower_lr, factor, decay = 3.5e-4, 5e-6, 2.0, 1e-4
    config = OptimConfig(lr=lr, backbone_lr=tower_lr, bias_lr_factor=factor, weight_decay=decay)
    make_optimizer(model, config).step()
    after = dict(model.named_parameters())
    names = old_names(golden["state_dict"])
    for old in golden["train"]["grad_norm"]:
        name = names[old]
        # The old rules: by name, with everything under `base` at the rate of the tower.
        rate = tower_lr if "base" in old else lr * factor if "bias" in old else lr
        g = gradients[name] + decay * before[name]
        first, second = 0.1 * g / (1 - 0.9), 0.001 * g * g / (1 - 0.999)
        expected = before[name] - rate * first / (second.sqrt() + 1e-8)
        assert_close(after[name].detach(), expected, rtol=1e-6, atol=rate * 1e-3)
    untouched = set(before) - {names[old] for old in golden["train"]["grad_norm"]}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in untouched} == {"neck"}
    assert all(torch.equal(after[name], before[name]) for name in untouched)
