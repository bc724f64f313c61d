import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slimreid.config.token_reduction import InBackboneConfig
from slimreid.errors import ConfigError
from slimreid.token_reduction.in_backbone import Stage, stages_of

USUAL = ((0.25, 0.5), (0.5, 0.2))


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
        InBackboneConfig(schedule=schedule)


def test_a_single_block_is_too_few():
    with pytest.raises(ConfigError, match="at least two blocks"):
        stages_of(USUAL, 1)
