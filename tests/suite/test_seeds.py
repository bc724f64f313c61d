"""Nothing that a test draws depends on the process, on the clock or on the tests before it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.seeds import seed_generators


def draw() -> tuple[float, float, float]:
    return random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002


AT_IMPORT = draw()


@pytest.fixture(scope="module")
def shared() -> tuple[float, float, float]:
    return draw()


@pytest.fixture
def own() -> tuple[float, float, float]:
    return draw()


@pytest.mark.parametrize("time", ["first", "second"])
def test_files_fixtures_and_tests_start_from_one_state(time, shared, own) -> None:
    after = draw()
    seed_generators()
    assert AT_IMPORT == shared == own == draw()
    assert after == draw() != own, "a test goes on from its fixtures"


def examples() -> list[tuple[int, str]]:
    seen = []

    @given(st.integers(), st.floats())
    def look(number: int, share: float) -> None:
        seen.append((number, str(share)))

    look()
    return seen


def test_hypothesis_draws_the_same_examples_every_time() -> None:
    seen = examples()
    assert len(set(seen)) > 20
    assert examples() == seen


def test_hypothesis_looks_at_no_clock() -> None:
    assert settings().deadline is None
