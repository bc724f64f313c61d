"""What searches found, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.identification import outcomes as reference
from slimreid.errors import DataError
from slimreid.gallery.decisions.searches import join_searches, search_outcomes


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
