from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import token_reduction as reference
from slimreid.errors import ConfigError, ModelError
from slimreid.token_reduction.estimators import Estimator
from slimreid.token_reduction.merge import merged_count
from slimreid.token_reduction.select import keep_top_patches, kept_count, stable_top


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 24), st.sampled_from([0.1, 0.3, 0.5, 0.6, 1.0]))
def test_selection_equals_the_loop(data, N, keep_ratio):
    # Few distinct values, so that ties are the rule.
    values = st.sampled_from([0.0, -0.0, 0.25, 0.5, -0.5, 1.0, 3.0e38, -3.0e38])
    scores = torch.tensor([data.draw(st.lists(values, min_size=N, max_size=N)) for _ in range(2)])
    patches = torch.randn(2, N, 3)
    selection = keep_top_patches(patches, scores, keep_ratio)
    for b in range(2):
        kept = reference.top(scores[b].tolist(), keep_ratio)
        assert selection.index[b].tolist() == kept
        assert torch.equal(selection.kept[b], patches[b, kept])
        assert selection.decision[b].nonzero().flatten().tolist() == sorted(kept)
        assert selection.decision[b].sum() == len(kept)
        expected = reference.leftover(patches[b].tolist(), scores[b].tolist(), kept)
        if expected is None:
            assert selection.leftover is None
        else:
            torch.testing.assert_close(selection.leftover[b, 0], torch.tensor(expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ties_go_to_the_lower_position(dtype):
    scores = torch.randint(0, 4, (50, 300)).to(dtype) - 1
    expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :120]
    assert torch.equal(stable_top(scores, 120), expected)
    assert stable_top(torch.zeros(1, 200, dtype=dtype), 7).tolist() == [list(range(7))]


def test_order_of_extreme_scores():
    tiny = torch.finfo(torch.float32).tiny
    scores = torch.tensor([[-tiny, 0.0, tiny, -torch.inf, torch.inf, -1.0, 1.0, 1e-45]])
    assert stable_top(scores, 8).tolist() == [[4, 6, 2, 7, 1, 0, 5, 3]]


@pytest.mark.parametrize(
    ("N", "keep", "merge", "K", "merged"),
    [
        (128, 0.5, 0.4, 64, 25),
        (196, 0.5, 0.4, 98, 39),
        (128, 0.6, 0.4, 77, 30),
        (1, 0.5, 0.4, 1, 1),
        (3, 0.5, 0.4, 2, 1),
    ],
)
def test_counts(N, keep, merge, K, merged):
    assert kept_count(N, keep) == K
    assert merged_count(N, merge, keep) == merged


def test_single_patch_is_kept_and_leaves_nothing():
    patches = torch.randn(2, 1, 3)
    selection = keep_top_patches(patches, torch.rand(2, 1), 0.5)
    assert torch.equal(selection.kept, patches)
    assert selection.leftover is None
    zero = keep_top_patches(patches, torch.rand(2, 1), 0.5, zero_leftover=True)
    assert torch.equal(zero.leftover, torch.zeros(2, 1, 3))


def test_zero_leftover_changes_nothing_when_something_is_dropped():
    patches, scores = torch.randn(2, 6, 3), torch.rand(2, 6)
    a, b = (keep_top_patches(patches, scores, 0.5, zero_leftover=flag).leftover for flag in (False, True))
    assert torch.equal(a, b)


def test_empty_batch_and_strided_input():
    selection = keep_top_patches(torch.empty(0, 6, 3), torch.empty(0, 6), 0.5)
    assert selection.kept.shape == (0, 3, 3)
    assert selection.leftover.shape == (0, 1, 3)
    wide, scores = torch.randn(2, 3, 6), torch.rand(6, 2)
    strided = keep_top_patches(wide.transpose(1, 2), scores.t(), 0.5)
    dense = keep_top_patches(wide.transpose(1, 2).contiguous(), scores.t().contiguous(), 0.5)
    assert torch.equal(strided.index, dense.index)
    torch.testing.assert_close(strided.leftover, dense.leftover)


@pytest.mark.parametrize("keep_ratio", [0.5, 1.0])
def test_gradients_of_kept_and_leftover(keep_ratio):
    patches = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    scores = torch.rand(2, 6, dtype=torch.float64, requires_grad=True)

    def outputs(patches, scores):
        selection = keep_top_patches(patches, scores, keep_ratio)
        return tuple(t for t in (selection.kept, selection.leftover) if t is not None)

    inputs = (patches, scores) if keep_ratio < 1 else (patches, scores.detach())
    assert torch.autograd.gradcheck(outputs, inputs)


def test_gradient_of_kept_alone_and_leftover_alone():
    patches, scores = torch.randn(2, 6, 3, requires_grad=True), torch.rand(2, 6)
    selection = keep_top_patches(patches, scores, 0.5)
    (grad,) = torch.autograd.grad(selection.kept.sum(), patches, retain_graph=True)
    assert torch.equal(grad, selection.decision[..., None].expand(2, 6, 3))
    (grad,) = torch.autograd.grad(selection.leftover.sum(), patches)
    assert torch.equal(grad[..., 0] > 0, selection.decision == 0)
    torch.testing.assert_close(grad.sum(1), torch.ones(2, 3))


@pytest.mark.parametrize(("patches", "scores"), [((2, 4), (2, 4)), ((2, 4, 3), (2, 5)), ((2, 0, 3), (2, 0))])
def test_shapes_that_do_not_fit_are_refused(patches, scores):
    with pytest.raises(ModelError, match="patches must be"):
        keep_top_patches(torch.rand(patches), torch.rand(scores), 0.5)


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.5, float("nan")])
def test_shares_out_of_range_are_refused(ratio):
    with pytest.raises(ConfigError, match="keep_ratio"):
        keep_top_patches(torch.zeros(1, 4, 2), torch.zeros(1, 4), ratio)


def test_unknown_estimators_and_temperatures_are_refused():
    with pytest.raises(ConfigError, match="estimator: 'bogus' has no soft mask"):
        Estimator("bogus")
    for tau in (0.0, float("inf")):
        with pytest.raises(ConfigError, match="tau"):
            Estimator("gumbel", tau)
