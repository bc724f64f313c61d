from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import token_reduction as reference
from slimreid.token_reduction.estimators import (
    Estimator,
    decide,
    gumbel_noise,
    gumbel_softmax,
    logistic_noise,
    soft_topk,
)
from slimreid.token_reduction.select import keep_top_patches, stable_top


@pytest.mark.parametrize("estimator", [None, "gumbel", "soft_topk"])
@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_decision_is_exactly_zero_or_one(estimator, tau):
    scores = torch.rand(8, 50)
    index = stable_top(scores, 20)
    decision = decide(scores, index, estimator and Estimator(estimator, tau))
    assert torch.equal(decision, torch.zeros(8, 50).scatter(1, index, 1.0))


def test_gumbel_has_the_gradient_of_its_softmax():
    scores = torch.rand(2, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 6, dtype=torch.float64)

    def gradient(mask):
        return torch.autograd.grad((mask * weight).sum(), scores)[0]

    index = stable_top(scores, 3)
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    straight = decide(scores, index, Estimator("gumbel", 0.7), generators[0])
    noise = gumbel_noise(scores, generators[1])
    torch.testing.assert_close(gradient(straight), gradient(((scores + noise) / 0.7).softmax(-1)))


def test_gumbel_noise_is_gumbel_and_finite():
    noise = gumbel_noise(torch.empty(400_000), torch.Generator().manual_seed(0))
    assert noise.isfinite().all()
    assert abs(noise.mean().item() - 0.57722) < 0.01  # Euler's constant
    assert abs(noise.var().item() - 1.64493) < 0.02  # π²/6


def test_logistic_noise_is_over_a_logit_as_often_as_its_sigmoid_says():
    noise = logistic_noise(torch.empty(200_000), torch.Generator().manual_seed(0))
    for logit in (-2.0, 0.0, 1.5):
        expected = torch.tensor(logit).sigmoid().item()
        assert (logit + noise > 0).float().mean().item() == pytest.approx(expected, abs=0.005)


def test_gumbel_noise_is_finite_where_the_exponential_is_zero(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator=None: self.zero_())
    assert gumbel_noise(torch.empty(3)).isfinite().all()


def test_gumbel_is_seedable_and_silent_in_eval():
    patches, scores = torch.randn(2, 9, 4), torch.rand(2, 9, requires_grad=True)

    def gradient(seed, training=True):
        estimator = Estimator("gumbel") if training else None
        generator = torch.Generator().manual_seed(seed)
        selection = keep_top_patches(patches, scores, 0.5, estimator=estimator, generator=generator)
        if not training:
            return selection.decision.requires_grad
        return torch.autograd.grad((selection.decision * patches[..., 0]).sum(), scores)[0]

    assert torch.equal(gradient(5), gradient(5))
    assert not torch.equal(gradient(5), gradient(6))
    assert gradient(5, training=False) is False


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=30),
    st.floats(0.05, 10),
    st.data(),
)
def test_soft_topk_equals_the_loop_and_sums_to_k(values, tau, data):
    k = data.draw(st.integers(1, len(values) - 1))
    mask = soft_topk(torch.tensor([values], dtype=torch.float64), k, tau)[0]
    expected = torch.tensor(reference.soft_topk(values, k, tau), dtype=torch.float64)
    torch.testing.assert_close(mask, expected, atol=1e-9, rtol=1e-7)
    assert abs(mask.sum().item() - k) < 1e-7
    single = soft_topk(torch.tensor([values]), k, tau)[0]
    torch.testing.assert_close(single.double(), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_soft_topk_gradient_against_finite_differences(tau, k):
    scores = torch.rand(3, 10, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: soft_topk(s, k, tau), (scores,))


def test_soft_topk_nears_the_hard_choice_as_tau_falls():
    scores = torch.linspace(0, 1, 10)[None]
    hard = (scores >= scores[0, 6]).float()
    assert (soft_topk(scores, 4, 0.005) - hard).abs().max() < 1e-4
    assert (soft_topk(scores, 4, 100.0) - 0.4).abs().max() < 2e-3


def test_soft_topk_edge_cases():
    scores = torch.full((2, 5), 0.3, requires_grad=True)
    torch.testing.assert_close(soft_topk(scores, 2, 0.1), torch.full((2, 5), 0.4))
    assert torch.equal(soft_topk(scores, 5), torch.ones(2, 5))
    saturated = torch.tensor([[0.0, 1000.0]], requires_grad=True)
    mask = soft_topk(saturated, 1, 0.01)
    mask[0, 0].backward()
    torch.testing.assert_close(mask, torch.tensor([[0.0, 1.0]]), atol=1e-6, rtol=0)
    assert saturated.grad.isfinite().all()
    assert soft_topk(torch.empty(0, 5), 2).shape == (0, 5)


def test_soft_masks_sum_to_one_and_to_k():
    scores = torch.rand(4, 30)
    torch.testing.assert_close(gumbel_softmax(scores, 0.5).sum(1), torch.ones(4))
    torch.testing.assert_close(soft_topk(scores, 12, 0.5).sum(1), torch.full((4,), 12.0))
