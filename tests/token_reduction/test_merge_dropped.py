"""Merging dropped patches into the nearest kept ones, against plain loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reference import merge_dropped as reference
from slimreid.token_reduction import ReducedTokens
from slimreid.token_reduction.merge import nearest_weights, patch_similarity, redundancy
from slimreid.token_reduction.select import stable_top


@st.composite
def pictures(draw):
    """Patches (2, n, 5), scores (2, n) and K < n; few values, so that patches and scores are often equal."""
    n = draw(st.integers(2, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    kinds = torch.randn(2, draw(st.integers(1, n)), 5, generator=generator, dtype=torch.float64)
    kind = torch.randint(kinds.shape[1], (2, n, 1), generator=generator).expand(-1, -1, 5)
    levels = draw(st.integers(1, 2 * n))
    score = torch.randint(levels, (2, n), generator=generator).double() / levels
    return kinds.gather(1, kind), score, draw(st.integers(1, n - 1))


@given(pictures())
def test_similarity_equals_the_loop(picture):
    patches, _, _ = picture
    alike = patch_similarity(patches)
    for b in range(2):
        rows = patches[b].tolist()
        if len({tuple(row) for row in rows}) > 1:  # with one kind of patch, nothing but rounding is left
            assert_close(alike[b], torch.tensor(reference.similarity(rows), dtype=torch.float64))
    assert alike.abs().max() <= 1 + 1e-9


@given(pictures())
def test_redundancy_equals_the_loop(picture):
    patches, score, _ = picture
    alike = patch_similarity(patches)
    found = redundancy(alike, score)
    for b in range(2):
        assert found[b].tolist() == reference.redundancy(alike[b].tolist(), score[b].tolist())
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-9
    assert (found.gather(1, stable_top(score, 1)) == 0).all(), "nothing matters more than the best"


@given(pictures(), st.booleans(), st.integers(0, 1000))
def test_merging_equals_the_loop_and_loses_no_patch(picture, sized, seed):
    patches, score, count = picture
    n = score.shape[1]
    alike, index = patch_similarity(patches), stable_top(score, count)
    size = torch.randint(1, 9, (2, n), generator=torch.Generator().manual_seed(seed)) if sized else None
    weights, sizes = nearest_weights(alike, index, size)
    assert weights.shape == (2, count, n)
    before = torch.ones(2, n) if size is None else size
    assert sizes.sum(1).tolist() == before.sum(1).tolist()
    for b in range(2):
        groups = reference.members(alike[b].tolist(), index[b].tolist())
        assert sorted(j for group in groups for j in group) == list(range(n))
        for k, group in enumerate(groups):
            total = sum(float(before[b, j]) for j in group)
            assert float(sizes[b, k]) == total
            expected = [float(before[b, j]) / total if j in group else 0.0 for j in range(n)]
            assert_close(weights[b, k], torch.tensor(expected, dtype=torch.float64))


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 10_000))
def test_as_many_as_there_are_kinds_keep_one_of_each(kinds, copies, seed):
    """However low a kind scores as a whole: all but the best of its patches are redundant."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.arange(kinds).repeat(copies)[torch.randperm(kinds * copies, generator=generator)]
    alike = (kind[:, None] == kind).double()[None]
    score = torch.rand(1, len(kind), generator=generator, dtype=torch.float64)
    kept = stable_top(score - 2 * redundancy(alike, score), kinds)[0].tolist()
    assert sorted(kind[i] for i in kept) == list(range(kinds))
    for i in kept:
        assert score[0, i] == score[0, kind == kind[i]].max(), "the best of its kind"


def test_the_best_of_equal_patches_goes_last_whatever_the_weight():
    torch.manual_seed(0)
    patches = torch.randn(1, 4, 6).repeat(1, 2, 1)  # patch i equals patch i + 4
    score = torch.rand(1, 8)
    alike = patch_similarity(patches)
    for weight in (0.0, 0.1, 1.0, 10.0):
        order = stable_top(score - weight * redundancy(alike, score), 8)[0].tolist()
        for i in range(4):
            first = i if score[0, i] >= score[0, i + 4] else i + 4
            other = 2 * i + 4 - first
            assert order.index(first) < order.index(other)


def test_ties_go_to_the_first_kept_patch_and_a_kept_patch_stays_itself():
    alike = torch.tensor([[[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]])
    weights, sizes = nearest_weights(alike, torch.tensor([[2, 0]]))
    assert sizes.tolist() == [[2.0, 1.0]]
    assert weights.tolist() == [[[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]]
    same = torch.ones(1, 3, 3)  # equal to all others, and yet its own
    assert nearest_weights(same, torch.tensor([[2, 0]]))[1].tolist() == [[2.0, 1.0]]
    assert redundancy(same, torch.zeros(1, 3)).tolist() == [[0.0, 1.0, 1.0]], "the first one stays"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_counted_and_compared_in_full(dtype):
    torch.manual_seed(0)
    patches = torch.randn(1, 701, 8)
    with torch.autocast("cpu", dtype):
        alike = patch_similarity(patches)
    assert torch.equal(alike, patch_similarity(patches)), "autocast does not reach it"
    alike = patch_similarity(patches.to(dtype))
    assert alike.dtype == torch.float32
    weights, sizes = nearest_weights(alike, torch.zeros(1, 1, dtype=torch.int64))
    assert sizes.tolist() == [[701.0]], "too many for bfloat16"
    assert_close(weights.sum(-1), torch.ones(1, 1))
    assert patch_similarity(torch.ones(1, 3, 4, dtype=dtype)).isfinite().all(), "patches all equal"


def test_similarity_has_no_gradient_and_does_not_see_scale_or_a_common_part():
    torch.manual_seed(0)
    patches = torch.randn(2, 6, 16, requires_grad=True)
    alike = patch_similarity(patches)
    assert not alike.requires_grad
    assert_close(alike, patch_similarity(3 * patches), atol=1e-4, rtol=1e-3)
    assert alike.flatten(1).mean(1).abs().max() < 0.1, "what all share is gone"


def test_pooled_counts_tokens_by_their_size():
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 4.0]], [[2.0, 2.0], [4.0, 6.0]]])
    reduced = ReducedTokens(tokens, (), size=torch.tensor([[3.0, 1.0], [1.0, 1.0]]))
    assert reduced.pooled().tolist() == [[0.75, 1.0], [3.0, 4.0]]
    assert ReducedTokens(tokens, ()).pooled().tolist() == [[0.5, 2.0], [3.0, 4.0]]
    absent = ReducedTokens(torch.zeros(1, 2, 3), (), size=torch.zeros(1, 2))
    assert absent.pooled().tolist() == [[0.0, 0.0, 0.0]]
