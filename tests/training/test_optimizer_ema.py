"""The moving average of the weights."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

from slimreid.errors import ConfigError, ModelError
from slimreid.training.optimizer import EMA


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def change(model, seed):
    """Other weights and other running statistics, as a training step leaves them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    model.train()(torch.randn(5, 3, generator=generator))


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_average_follows_the_formula(model, decay):
    ema = EMA(model, decay)
    expected = {n: v.clone().double() for n, v in model.state_dict().items()}
    for n in range(30):
        change(model, n)
        ema.update()
        d = min(decay, (1 + n) / (10 + n))
        for name, value in model.state_dict().items():
            counter = name.endswith("num_batches_tracked")
            expected[name] = value.double() if counter else d * expected[name] + (1 - d) * value.double()
    saved = {name: value.double() for name, value in ema.state_dict().items()}
    assert int(saved.pop("updates")) == 30
    assert_close(saved, expected, rtol=1e-5, atol=1e-5)


def test_swapping_in_evaluates_the_average_and_restores_bit_for_bit(model):
    ema = EMA(model, 0.9)
    change(model, 1)
    ema.update()
    own = {n: v.clone() for n, v in model.state_dict().items()}
    identities = [id(p) for p in model.parameters()]
    model.eval()
    x = torch.randn(2, 3)
    outside = model(x)
    with ema.swapped() as averaged:
        assert averaged is model
        assert_close(dict(model.state_dict()), {k: v for k, v in ema.state_dict().items() if k != "updates"})
        assert not torch.equal(model(x), outside)
    assert all(torch.equal(v, own[n]) for n, v in model.state_dict().items())
    assert torch.equal(model(x), outside)
    assert [id(p) for p in model.parameters()] == identities, "an optimizer still knows them"


def test_an_error_while_swapped_restores_the_weights_too(model):
    ema = EMA(model, 0.9)
    change(model, 1)
    own = {n: v.clone() for n, v in model.state_dict().items()}
    with pytest.raises(ZeroDivisionError), ema.swapped():
        1 / 0  # noqa: B018
    assert all(torch.equal(v, own[n]) for n, v in model.state_dict().items())


def test_goes_on_after_saving_to_a_file(model, tmp_path):
    ema = EMA(model, 0.99)
    change(model, 1)
    ema.update()
    save_file(ema.state_dict(), tmp_path / "ema.safetensors")
    again = EMA(model, 0.99)
    again.load_state_dict(load_file(tmp_path / "ema.safetensors"))
    change(model, 2)
    ema.update()
    again.update()
    first, second = ema.state_dict(), again.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_later_changes_of_the_model_do_not_leak_into_the_average(model):
    ema = EMA(model, 0.9)
    before = {n: v.clone() for n, v in ema.state_dict().items()}
    change(model, 3)
    assert all(torch.equal(v, before[n]) for n, v in ema.state_dict().items())


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1])
def test_refuses_what_is_no_decay(model, decay):
    with pytest.raises(ConfigError, match=r"optim\.ema"):
        EMA(model, decay)


def test_refuses_the_average_of_another_model(model):
    ema = EMA(model, 0.9)
    state = ema.state_dict()
    with pytest.raises(ModelError, match=r"0\.weight"):
        ema.load_state_dict({**state, "0.weight": torch.zeros(9, 9)})
    with pytest.raises(ModelError, match=r"2\.bias, stranger"):
        ema.load_state_dict({k: v for k, v in state.items() if k != "2.bias"} | {"stranger": torch.zeros(1)})
