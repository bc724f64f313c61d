"""What searches found, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.identification import outcomes as reference
from slimreid.errors import DataError
from slimreid.gallery.decisions.searches import Searches, join_searches, search_outcomes, split_searches


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 6), rows=st.integers(0, 8))
def test_equals_a_plain_loop(seed: int, queries: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (queries, rows)).astype(np.float32)  # few values, so that ties occur
    scores[rng.random(scores.shape) < 0.2] = np.nan
    ignore = rng.random(scores.shape) < 0.2
    who, names = (rng.choice(["a", "b", "c"], n) for n in (queries, rows))
    found = search_outcomes(scores, who, names, np.full(queries, "r"), ignore)
    wanted = reference(scores.tolist(), who.tolist(), names.tolist(), ignore.tolist())
    np.testing.assert_array_equal(np.stack([found.other, found.own], axis=1), np.array(wanted))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"scores must be \(1, 2\), not \(2, 1\)"):
        search_outcomes(np.zeros((2, 1)), ["a"], ["a", "b"], ["r"])
    with pytest.raises(DataError, match="ignore must be"):
        search_outcomes(np.zeros((1, 2)), ["a"], ["a", "b"], ["r"], [[True]])
    with pytest.raises(DataError, match="subset must be"):
        search_outcomes(np.zeros((1, 2)), ["a"], ["a", "b"], ["r", "n"])
    with pytest.raises(DataError, match="no searches"):
        join_searches([])


def some_searches(identities: int, each: int = 2) -> Searches:
    n = identities * each
    scores = np.arange(n, dtype=np.float64)
    return Searches(np.repeat(np.arange(identities), each), scores, scores + 1, np.full(n, "r"))


def test_parts_share_no_identity_and_lose_nothing() -> None:
    whole = some_searches(10)
    first, second = split_searches(whole, 0.3, seed=1)
    assert len(set(second.identity)) == 3
    assert not set(first.identity) & set(second.identity)
    again = join_searches([first, second])
    np.testing.assert_array_equal(np.sort(again.other), whole.other)
    assert not np.array_equal(second.identity, split_searches(whole, 0.3, seed=2)[1].identity)


def test_a_part_without_identities_is_refused() -> None:
    with pytest.raises(DataError, match="1 identities cannot be split"):
        split_searches(some_searches(1), 0.5)
