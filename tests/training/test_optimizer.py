"""Parameter groups by name, and every option of the optimizer."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from slimreid.config import ModelConfig, OptimConfig
from slimreid.models.reid_model import build_model
from slimreid.training.optimizer import freeze_backbone, make_optimizer, parameter_groups


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = ModelConfig(backbone="vit_tiny", global_local=True, camera_embedding=True)
    return build_model(config, (32, 32), ("rgb", "nir"), 3, 2)


@pytest.fixture
def moe_model():
    torch.manual_seed(0)
    return build_model(
        ModelConfig(backbone="vit_tiny", reduction="none", fusion="hdm_atmoe", moe_heads=2),
        (32, 32),
        ("rgb", "nir"),
        3,
    )


def settings_of(model, config) -> dict[str, tuple[float, float]]:
    """(lr, weight decay) of each parameter by name."""
    names = {id(p): n for n, p in model.named_parameters()}
    found: dict[str, tuple[float, float]] = {}
    for group in parameter_groups(model, config):
        for parameter in group["params"]:
            assert names[id(parameter)] not in found, "in two groups"
            found[names[id(parameter)]] = (group["lr"], group["weight_decay"])
    return found


@pytest.mark.parametrize("which", ["model", "moe_model"])
def test_every_trainable_parameter_is_in_exactly_one_group(which, request):
    model = request.getfixturevalue(which)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(settings_of(model, OptimConfig())) == trainable
    assert not {name for name in trainable if name.endswith("neck.bias")}, "the neck's bias is frozen"


def test_learning_rates_of_the_recipe(model):
    found = settings_of(model, OptimConfig(lr=1e-2, backbone_lr=1e-5, bias_lr_factor=3))
    for name, (lr, decay) in found.items():
        if name.startswith("backbone.") and name != "backbone.camera_embedding":
            assert lr == 1e-5, name  # biases too
        else:
            assert lr == pytest.approx(3e-2 if name.endswith("bias") else 1e-2), name
        assert decay == 1e-4
    assert found["backbone.camera_embedding"][0] == 1e-2, "no pretrained weights have it"


def test_without_a_backbone_rate_it_learns_like_the_rest(model):
    found = settings_of(model, OptimConfig(lr=1e-2, backbone_lr=None))
    assert found["backbone.blocks.0.attn.qkv.weight"][0] == 1e-2
    assert found["backbone.blocks.0.attn.qkv.bias"][0] == 1e-2, "the factor is for others"


@pytest.mark.parametrize("which", ["model", "moe_model"])
def test_everything_decays_alike(which, request):
    model = request.getfixturevalue(which)
    assert {d for _, d in settings_of(model, OptimConfig(weight_decay=0.05)).values()} == {0.05}


def test_frozen_backbone_is_left_out_and_gets_no_gradient(model):
    optimizer = make_optimizer(model, OptimConfig(freeze_backbone=True))
    assert {group["name"].partition(".")[0] for group in optimizer.param_groups} == {"new"}
    model.train()
    images = {name: torch.randn(4, 3, 32, 32) for name in model.modalities}
    output = model(images, torch.zeros(4, dtype=torch.int64))
    output.logits["slimmed"].logsumexp(1).sum().backward()
    assert all(p.grad is None for p in model.backbone.parameters())
    assert model.after_backbone.mergers["rgb"].weight[1].weight.grad is not None


def test_freezing_is_what_the_option_does(model):
    other = {
        name for name, p in model.named_parameters() if p.requires_grad and not name.startswith("backbone.")
    }
    freeze_backbone(model)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == other


def two_steps(model, config):
    """Weights after two steps along given gradients, by name."""
    optimizer = make_optimizer(model, config)
    for step in range(2):
        for number, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                generator = torch.Generator().manual_seed(100 * number + step)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def plain_steps(model, config):
    """The same, one parameter after the other by the formulas."""
    rates = settings_of(model, config)
    expected = {}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if not parameter.requires_grad:
            continue
        lr, decay = rates[name]
        p = parameter.detach().double()
        m = v = torch.zeros_like(p)
        for step in range(2):
            generator = torch.Generator().manual_seed(100 * number + step)
            g = torch.randn(parameter.shape, generator=generator).double()
            if config.name == "adamw":
                p = p * (1 - lr * decay)
            else:
                g = g + decay * p
            if config.name == "sgd":
                m = g if step == 0 else config.momentum * m + g
                p = p - lr * m
            else:
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                mean, square = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
                p = p - lr * mean / (square.sqrt() + 1e-8)
        expected[name] = p.float()
    return expected


@pytest.mark.parametrize(
    "change",
    [{"name": "adam"}, {"name": "adamw"}, {"name": "sgd"}, {"name": "sgd", "momentum": 0.0}],
    ids=str,
)
def test_two_steps_follow_the_formulas(model, change):
    config = OptimConfig(lr=1e-2, backbone_lr=1e-3, weight_decay=0.1, **change)
    expected = plain_steps(model, config)
    torch.testing.assert_close(two_steps(model, config), expected, rtol=1e-5, atol=1e-6)


def test_optimizer_state_carries_on(model):
    config = OptimConfig(name="adam")
    first = make_optimizer(model, config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    first.step()
    second = make_optimizer(model, config)
    second.load_state_dict(deepcopy(first.state_dict()))
    assert [g["name"] for g in second.param_groups] == [g["name"] for g in first.param_groups]
    before = [p.detach().clone() for p in model.parameters()]
    first.step()
    once = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    second.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), once, strict=True))
