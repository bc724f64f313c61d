import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.errors import ConfigError
from slimreid.slimming import (
    Stage,
    leftover_weights,
    regions_of,
    shrinking_share,
    slimming_options,
    stages_of,
)
from slimreid.slimming.random_scores import fixed_scores

USUAL = ((0.25, 0.5), (0.5, 0.2))
NEAREST = {"where": "inside", "leftover": "nearest", "sources": ("own", "others")}


@pytest.mark.parametrize(
    ("schedule", "depth", "expected"),
    [
        (USUAL, 12, [(3, 0.5), (6, 0.2)]),
        (USUAL, 24, [(6, 0.5), (12, 0.2)]),
        (USUAL, 4, [(1, 0.5), (2, 0.2)]),
        (USUAL, 2, [(1, 0.2)]),
        (((0.01, 0.9), (0.99, 0.1)), 12, [(1, 0.9), (11, 0.1)]),
        (((0.5, 1.0),), 5, [(3, 1.0)]),
    ],
)
def test_ratios_fit_any_depth(schedule, depth, expected):
    assert stages_of(schedule, depth) == tuple(Stage(*pair) for pair in expected)


@given(
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5, unique=True),
    st.lists(st.floats(0.001, 1), min_size=5, max_size=5, unique=True),
    st.integers(2, 40),
)
def test_stages_rise_fall_and_leave_a_block_on_both_sides(positions, shares, depth):
    schedule = list(zip(sorted(positions), sorted(shares, reverse=True), strict=False))
    stages = stages_of(schedule, depth)
    blocks, kept = [s.block for s in stages], [s.share for s in stages]
    assert blocks == sorted(set(blocks))
    assert kept == sorted(set(kept), reverse=True)
    assert kept[-1] == schedule[-1][1], "the last share always counts"
    assert blocks[0] >= 1
    assert blocks[-1] <= depth - 1


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ((), "at least one"),
        (((0.0, 0.5),), r"position 0.0 is not in \(0, 1\)"),
        (((1.0, 0.5),), "position 1.0"),
        (((0.5, 0.0),), r"share 0.0 is not in \(0, 1\]"),
        (((0.5, 1.5),), "share 1.5"),
        (((0.5, 0.5), (0.25, 0.2)), "positions must rise"),
        (((0.25, 0.5), (0.5, 0.5)), "shares must fall"),
        (((0.25, 0.5, 1),), "not a pair"),
        (((math.nan, 0.5),), "position nan"),
    ],
)
def test_schedules_that_are_none(schedule, message):
    with pytest.raises(ConfigError, match=message):
        stages_of(schedule, 12)
    with pytest.raises(ConfigError, match=message):
        slimming_options(where="inside", schedule=schedule)


def test_a_single_block_cannot_be_slimmed_inside():
    with pytest.raises(ConfigError, match="at least two blocks"):
        stages_of(USUAL, 1)


def test_shares_shrink_from_one():
    assert [shrinking_share(0.2, p) for p in (0, 0.25, 0.5, 1, 3)] == pytest.approx([1, 0.8, 0.6, 0.2, 0.2])
    cosine = [shrinking_share(0.2, p, "cosine") for p in (0, 0.25, 0.5, 1)]
    assert cosine == pytest.approx([1, 1 - 0.8 * (1 - math.cos(math.pi / 4)) / 2, 0.6, 0.2])
    with pytest.raises(ConfigError, match="keep_warmup_shape"):
        shrinking_share(0.2, 0.5, "square")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"where": "insde"}, "did you mean 'inside'"),
        ({"soft_keys": True, "estimator": "gumbel"}, "soft_keys: is for slimming inside"),
        ({"schedule": ((0.5, 0.5),)}, "schedule: is for slimming inside"),
        ({"leftover": "none"}, "leftover: is for slimming inside"),
        ({"keep_warmup_epochs": 3}, "keep_warmup_epochs: is for"),
        ({"where": "inside", "keep_ratio": 0.3}, "'schedule' decides"),
        ({"where": "inside", "learned": False}, "'sources' decides"),
        ({"where": "inside", "zero_leftover": True}, "'leftover' decides"),
        ({"where": "inside", "ratio_loss": "paper"}, "ratio_loss"),
        ({"where": "inside", "sources": ()}, "one or more different"),
        ({"where": "inside", "sources": ("own", "own")}, "one or more different"),
        ({"where": "inside", "sources": ("atention",)}, "did you mean 'attention'"),
        ({"where": "inside", "sources": ("random", "own")}, "goes with no other"),
        ({"where": "inside", "leftover": "regions", "regions": (1, 1)}, "use leftover 'single'"),
        ({"where": "inside", "leftover": "regions", "regions": (0, 2)}, "regions"),
        ({"redundancy": 1.0}, "redundancy: is for slimming inside"),
        ({"where": "inside", "redundancy": 1.0}, "redundancy: needs leftover 'nearest'"),
        ({**NEAREST, "redundancy": -0.1}, "redundancy: -0.1 is not a finite number"),
        ({**NEAREST, "redundancy": math.inf}, "redundancy: inf is not a finite number"),
        ({**NEAREST, "redundancy": math.nan}, "redundancy: nan is not a finite number"),
        ({**NEAREST, "leftover": "nearst"}, "did you mean 'nearest'"),
        ({**NEAREST, "sources": ("learned", "own")}, "'learned' would get no gradient"),
        ({"where": "inside", "keep_warmup_epochs": -1}, "negative"),
        ({"where": "inside", "keep_warmup_shape": "sine"}, "keep_warmup_shape"),
        ({"where": "inside", "soft_keys": True}, "no effect with estimator 'topk'"),
        ({"where": "inside", "estimator": "gumbel", "merge": "none"}, "no effect without soft_keys"),
        ({"where": "inside", "leftover": "none"}, "'learned' would get no gradient"),
        ({"where": "inside", "selection_gradient": False}, "'learned' would get no gradient"),
    ],
)
def test_contradictions_of_slimming_inside(changes, message):
    with pytest.raises(ConfigError, match=message):
        slimming_options(**changes)


def test_regions_by_position():
    y, x = torch.meshgrid(torch.arange(4), torch.arange(3), indexing="ij")
    places = torch.stack([(2 * y + 1) / 4 - 1, (2 * x + 1) / 3 - 1], -1).reshape(1, 12, 2)
    assert regions_of(places, (2, 3)).view(4, 3).tolist() == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2
    assert regions_of(torch.tensor([[[-1.0, -1.0], [1.0, 1.0]]]), (2, 2)).tolist() == [[0, 3]], "the border"


@pytest.mark.parametrize("regions", [1, 3])
def test_leftovers_of_two_stages_are_one_softmax_over_all_that_was_dropped(regions):
    """With tokens that do not change between the stages."""
    torch.manual_seed(0)
    score, tokens = torch.rand(2, 9, dtype=torch.float64), torch.randn(2, 9, 4, dtype=torch.float64)
    region = (torch.arange(9) % 3).expand(2, 9) if regions == 3 else None
    first = torch.arange(9).expand(2, 9) < 6
    weights, mass = leftover_weights(score, first, region, regions)
    assert torch.allclose(weights.sum(-1), torch.ones(2, regions, dtype=torch.float64))
    left = weights @ tokens
    second = torch.arange(6).expand(2, 6) < 2
    some = None if region is None else region[:, :6]
    weights, mass = leftover_weights(score[:, :6], second, some, regions, mass)
    assert torch.allclose(weights.sum(-1), torch.ones(2, regions, dtype=torch.float64))
    left = weights @ torch.cat([tokens[:, :6], left], 1)
    for b in range(2):
        for r in range(regions):
            dropped = [i for i in range(2, 9) if region is None or i % 3 == r]
            expected = score[b, dropped].softmax(0) @ tokens[b, dropped]
            torch.testing.assert_close(left[b, r], expected)
            torch.testing.assert_close(mass[b, r], score[b, dropped].logsumexp(0))


def test_a_region_that_lost_nothing_has_the_mean_of_its_patches_and_finite_gradients():
    score = torch.rand(1, 6, requires_grad=True)
    region = torch.tensor([[0, 0, 0, 1, 1, 1]])
    kept = torch.tensor([[True, True, True, True, False, False]])
    weights, mass = leftover_weights(score, kept, region, 3)
    assert weights[0, 0].tolist() == pytest.approx([1 / 3] * 3 + [0] * 3)
    assert weights[0, 1, 3] == 0
    assert weights[0, 2].tolist() == pytest.approx([1 / 6] * 6), "a region without patches: the mean of all"
    weights, mass = leftover_weights(
        score[:, :4], torch.tensor([[True, True, False, True]]), region[:, :4], 3, mass
    )
    assert weights[0, 0].tolist() == pytest.approx([0, 0, 1, 0, 0, 0, 0]), "nothing of the stand-in is left"
    assert weights[0, 1].tolist() == pytest.approx([0] * 5 + [1, 0]), "nothing new: it stays"
    (weights.square().sum() + mass[:, :2].sum()).backward()
    assert score.grad.isfinite().all()


def test_fixed_scores_are_the_same_everywhere_and_look_random():
    patch = torch.arange(1000).expand(2, -1)
    one = fixed_scores(patch, torch.tensor([[0], [1]]), 0)
    assert torch.equal(one, fixed_scores(patch, torch.tensor([[0], [1]]), 0))
    assert torch.equal(one[:, [5, 3]], fixed_scores(patch[:, [5, 3]], torch.tensor([[0], [1]]), 0))
    assert 0 <= one.min() < 0.01
    assert 0.99 < one.max() < 1
    assert one.mean(1).tolist() == pytest.approx([0.5, 0.5], abs=0.03)
    streams = torch.stack([*one, fixed_scores(patch, torch.tensor([[0], [1]]), 1)[0]])
    assert torch.corrcoef(streams).fill_diagonal_(0).abs().max() < 0.1
    assert torch.corrcoef(torch.stack([one[0, 1:], one[0, :-1]]))[0, 1].abs() < 0.1, "neighbours differ"
