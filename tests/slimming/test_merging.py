from __future__ import annotations

import pytest
import torch
from slimming_cases import perturb

from reference import slimming as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.slimming import DualPatchMerger, PatchMerger, merge_patches, ratio_loss


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


def test_dual_merger_adds_two_merges_with_one_scale():
    merger = DualPatchMerger(10, 3)
    perturb(merger)
    kept = torch.randn(2, 1, 4, 10)
    merged, weights = merger((kept[0], kept[1]))
    parts = [
        reference.merge(network, merger.scale.item(), kept[i, 0].tolist())
        for i, network in enumerate(merger.weights)
    ]
    torch.testing.assert_close(merged[0], torch.tensor(parts[0]) + torch.tensor(parts[1]))
    assert len(weights) == 2
    assert sum(p.numel() for name, p in merger.named_parameters() if "scale" in name) == 1


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


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="logits must be"):
        merge_patches(torch.rand(2, 5, 4), torch.rand(2, 4, 3))
    with pytest.raises(ModelError, match="logits must be"):
        merge_patches(torch.rand(2, 5, 4), torch.rand(2, 5, 3), decision=torch.ones(2, 6))


def test_ratio_losses():
    first, second = torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([[1.0, 1, 0, 0]])
    assert ratio_loss([first], 0.5).item() == pytest.approx((0.5 - 0.25) ** 2)
    assert ratio_loss([first, second], 0.5).item() == pytest.approx((0.5 - 0.25 - 0.5) ** 2)
    weighted = ratio_loss([first, second], 0.5, lambdas=(0.5, 2.0))
    assert weighted.item() == pytest.approx((0.5 - 0.125 - 1.0) ** 2)
    assert ratio_loss([first, second], 0.6, "released").item() == pytest.approx((0.75 - 0.6) ** 2)
    assert ratio_loss([first[:0]], 0.5).item() == 0


def test_ratio_loss_has_a_gradient_where_the_number_kept_can_vary():
    decision = torch.tensor([[0.9, 0.8, 0.1]], requires_grad=True)
    for form in ("paper", "released"):
        (gradient,) = torch.autograd.grad(ratio_loss([decision], 0.3, form), decision)
        assert (gradient > 0).all()


def test_ratio_loss_refuses_what_it_does_not_know():
    with pytest.raises(ConfigError, match="papers"):
        ratio_loss([torch.ones(1, 2)], 0.5, "papers")
    with pytest.raises(ConfigError, match="lambdas"):
        ratio_loss([torch.ones(1, 2)] * 2, 0.5, lambdas=(1.0,))
