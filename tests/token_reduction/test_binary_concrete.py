"""Selection patch by patch: against plain loops, its gradients, and the ratio loss that steers it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from reference import token_reduction as reference
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.token_reduction.estimators import logistic_noise, ratio_loss
from slimreid.token_reduction.select import keep_by_threshold
from support.reduction import NAMES, make_reducer, streams


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.sampled_from([0.2, 0.5, 1.0]), st.integers(0, 1000), st.booleans())
def test_selection_equals_the_loop(N, most, seed, noise):
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(3, N, 4, generator=generator, dtype=torch.float64)
    score = torch.rand(3, N, generator=generator, dtype=torch.float64)
    logits = 2 * torch.randn(3, N, generator=generator, dtype=torch.float64)
    drawn = torch.zeros_like(logits)
    if noise:
        drawn = logistic_noise(logits, torch.Generator().manual_seed(seed))
    found = keep_by_threshold(
        patches, score, logits, most, noise=noise, generator=torch.Generator().manual_seed(seed)
    )
    places = max(1, -(-int(N * most * 10) // 10))
    assert found.index.shape[1] == places
    for b in range(3):
        kept = reference.keep_by_threshold(logits[b].tolist(), drawn[b].tolist(), places)
        assert found.index[b, : len(kept)].tolist() == kept, "kept ones first, the highest first of all"
        assert found.decision[b].nonzero()[:, 0].tolist() == sorted(kept)
        left = reference.leftover(patches[b].tolist(), score[b].tolist(), kept)
        expected = [0.0] * 4 if left is None else left
        torch.testing.assert_close(found.leftover[b, 0], torch.tensor(expected, dtype=torch.float64))


def test_the_decision_has_the_gradient_of_the_binary_concrete_variable():
    logits = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    patches, weights = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    found = keep_by_threshold(patches, logits.detach(), logits, generator=torch.Generator().manual_seed(1))
    assert set(found.decision.unique().tolist()) <= {0.0, 1.0}
    noise = logistic_noise(logits, torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(((logits + noise).sigmoid() * weights).sum(), logits)[0]
    torch.testing.assert_close(torch.autograd.grad((found.decision * weights).sum(), logits)[0], expected)


@pytest.mark.parametrize("merge", ["learned", "none"])
def test_tokens_are_those_of_the_patches_that_were_kept(merge):
    """Empty places of the buffer have no part in merge, leftover and mean."""
    gate = {"straight_through_gate": True} if merge == "none" else {}
    reducer = make_reducer(estimator="binary_concrete", noise=False, merge=merge, **gate).double().train()
    patches, vectors = streams(dtype=torch.float64)
    with torch.no_grad():
        reduced = reducer(patches, vectors)
    pooled, counts = reduced.pooled(), set()
    for b in range(3):
        for m, name in enumerate(NAMES):
            scores = reduced.selection.score[b, m].tolist()
            threshold = reducer.thresholds[name].item()
            rows = patches[b, m].tolist()
            kept = reference.keep_by_threshold([s - threshold for s in scores], [0.0] * 10, 10)
            counts.add(len(kept))
            tokens = [rows[i] for i in kept]
            if merge == "learned":
                merger = reducer.mergers[name]
                tokens = reference.merge(merger.weight, merger.scale.item(), tokens)
            left = reference.leftover(rows, scores, kept)
            tokens = tokens if left is None else [*tokens, left]
            mean = torch.tensor(tokens, dtype=torch.float64).mean(0)
            torch.testing.assert_close(pooled[b, m], mean)
            assert reduced.kept_share[b, m].item() == pytest.approx(len(kept) / 10)
    assert len(counts) > 1, "the number kept follows the image"


def test_the_buffer_caps_how_many_are_kept_and_test_keeps_the_best():
    reducer = make_reducer(estimator="binary_concrete", noise=False, max_keep_ratio=0.6).train()
    for threshold in reducer.thresholds.values():
        threshold.data.fill_(-10.0)  # everything is over it
    patches, vectors = streams()
    assert reducer(patches, vectors).selection.decision.sum(-1).tolist() == [[6.0] * 3] * 3
    for threshold in reducer.thresholds.values():
        threshold.data.fill_(10.0)  # nothing is
    assert reducer(patches, vectors).selection.decision.sum(-1).tolist() == [[1.0] * 3] * 3
    plain = make_reducer()
    plain.load_state_dict(reducer.state_dict(), strict=False)
    reduced, expected = reducer.eval()(patches, vectors), plain(patches, vectors)
    assert torch.equal(reduced.tokens, expected.tokens)
    assert reduced.size is None
    assert reduced.kept_share is None


def test_noise_is_seeded_and_off_in_test():
    reducer = make_reducer(estimator="binary_concrete").train()
    patches, vectors = streams()

    def decision(seed):
        generator = torch.Generator().manual_seed(seed)
        return reducer(patches, vectors, generator=generator).selection.decision

    assert torch.equal(decision(1), decision(1))
    assert not torch.equal(decision(1), decision(2))
    reducer.eval()
    assert torch.equal(decision(1), decision(2))


def test_the_ratio_loss_has_gradients_of_natural_size():
    """Into the threshold and the learned score; of the size of those of the tokens, not of a mask's constant."""
    norms = {}
    for what in ("ratio", "tokens"):
        reducer = make_reducer(estimator="binary_concrete", ratio_loss_weight=1.0, keep_ratio=0.3).train()
        reduced = reducer(*streams(B=8), generator=torch.Generator().manual_seed(0))
        share = reduced.kept_share
        loss = reducer.ratio_loss(share) if what == "ratio" else reduced.tokens.square().mean()
        assert share.mean().item() > 0.35, "there is something to pull"
        loss.backward()
        learned = [p for n, p in reducer.named_parameters() if n.startswith(("scorers", "thresholds"))]
        assert all(p.grad.abs().sum() > 0 for p in learned)
        norms[what] = torch.nn.utils.get_total_norm([p.grad for p in learned]).item()
    assert 1e-3 < norms["ratio"] < 10
    assert 0.01 < norms["ratio"] / norms["tokens"] < 100
    # d/dt (ρ − mean D)² = 2 (ρ − mean D) · mean p(1 − p), checked by hand for one row.
    logits = torch.zeros(1, 4, requires_grad=True)
    found = keep_by_threshold(torch.randn(1, 4, 2), torch.zeros(1, 4), logits - 0.1, noise=False)
    ratio_loss(found.decision.mean(1), 0.5).backward()
    p = torch.tensor(-0.1).sigmoid().item()
    assert logits.grad[0].tolist() == pytest.approx([-2 * (0.5 - 0.25) * p * (1 - p) / 4] * 4)


@pytest.mark.parametrize("target", [0.2, 0.45])
def test_the_ratio_loss_pulls_the_mean_share_to_its_target(target):
    """While a task is learned beside it; each image still keeps its own number of patches."""
    torch.manual_seed(0)
    options = AfterBackboneConfig(
        keep_ratio=target, estimator="binary_concrete", tau=0.2, ratio_loss_weight=4.0
    )
    reducer, head = AfterBackboneReducer(16, NAMES, options, num_patches=20), nn.Linear(48, 4)
    optimizer = torch.optim.Adam([*reducer.parameters(), *head.parameters()], lr=1e-2)
    shares = []
    for step in range(120):
        patches, vectors = streams(B=8, N=20, seed=step)
        reduced = reducer(patches, vectors)
        loss = F.cross_entropy(head(reduced.pooled().flatten(1)), torch.arange(8) % 4)
        optimizer.zero_grad()
        (loss + reducer.ratio_loss(reduced.kept_share)).backward()
        optimizer.step()
        shares.append(reduced.kept_share.detach())
    late = torch.stack(shares[-20:])
    assert late.mean().item() == pytest.approx(target, abs=0.06)
    assert abs(shares[0].mean().item() - target) > 0.1, "it was elsewhere"
    assert late.flatten().unique().numel() > 3


def test_an_empty_batch_has_no_ratio_loss():
    reducer = make_reducer(estimator="binary_concrete", ratio_loss_weight=1.0).train()
    reduced = reducer(*streams(B=0))
    assert reduced.tokens.shape == (0, 3, 3, 16)
    assert reducer.ratio_loss(reduced.kept_share.flatten()) == 0
