from __future__ import annotations

import pytest
import torch

from reference import token_reduction as reference
from slimreid.errors import ModelError
from slimreid.token_reduction.merge import PatchMerger, leftover_weights, merge_patches
from support.reduction import perturb


def test_merger_equals_the_loop():
    merger = PatchMerger(10, 3)
    perturb(merger)
    kept = torch.randn(2, 4, 10)
    merged, weights = merger(kept, torch.ones(2, 4))
    for b in range(2):
        expected = reference.merge(merger.weight, merger.scale.item(), kept[b].tolist())
        torch.testing.assert_close(merged[b], torch.tensor(expected))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
    assert merger.weight[1].out_features == 2


def test_decision_changes_nothing_forward_and_is_a_logit_backward():
    kept, logits = torch.randn(2, 5, 4), torch.randn(2, 5, 3, requires_grad=True)
    decision = torch.ones(2, 5, requires_grad=True)
    with_decision, _ = merge_patches(kept, logits, decision=decision)
    without, _ = merge_patches(kept, logits)
    assert torch.equal(with_decision, without)
    (with_decision * torch.randn(2, 3, 4)).sum().backward()
    # log D is added to every row of logits, so its gradient is the sum of theirs.
    torch.testing.assert_close(decision.grad, logits.grad.sum(2))


def test_a_decision_of_zero_takes_a_patch_out():
    kept, logits = torch.randn(1, 3, 4), torch.randn(1, 3, 2)
    merged, weights = merge_patches(kept, logits, decision=torch.tensor([[1.0, 0.0, 1.0]]))
    assert (weights[..., 1] == 0).all()
    rest, _ = merge_patches(kept[:, [0, 2]], logits[:, [0, 2]])
    torch.testing.assert_close(merged, rest)


def test_a_decision_of_zero_has_a_finite_gradient():
    kept, logits = torch.randn(1, 3, 4), torch.randn(1, 3, 2)
    decision = torch.tensor([[1.0, 0.0, 1.0]], requires_grad=True)
    merged, _ = merge_patches(kept, logits, decision=decision)
    (merged * torch.randn(1, 2, 4)).sum().backward()
    assert decision.grad.isfinite().all()
    assert decision.grad[0, 1] == 0
    assert decision.grad[0, 0] != 0


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="logits must be"):
        merge_patches(torch.rand(2, 5, 4), torch.rand(2, 4, 3))
    with pytest.raises(ModelError, match="logits must be"):
        merge_patches(torch.rand(2, 5, 4), torch.rand(2, 5, 3), decision=torch.ones(2, 6))


def test_the_leftover_of_two_stages_is_one_softmax_over_all_that_was_dropped():
    """With tokens that do not change between the stages."""
    torch.manual_seed(0)
    score, tokens = torch.rand(2, 9, dtype=torch.float64), torch.randn(2, 9, 4, dtype=torch.float64)
    weights, mass = leftover_weights(score, torch.arange(9).expand(2, 9) < 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, dtype=torch.float64))
    left = weights @ tokens
    weights, mass = leftover_weights(score[:, :6], torch.arange(6).expand(2, 6) < 2, mass)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, dtype=torch.float64))
    left = weights @ torch.cat([tokens[:, :6], left], 1)
    for b in range(2):
        torch.testing.assert_close(left[b, 0], score[b, 2:].softmax(0) @ tokens[b, 2:])
        torch.testing.assert_close(mass[b, 0], score[b, 2:].logsumexp(0))
