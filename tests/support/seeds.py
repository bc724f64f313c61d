"""A pytest plugin: what is drawn at random is the same in every run, whichever tests ran before and in which process.

Every file, every fixture that tests share and every test finds the global generators in one state, and Hypothesis
derives its examples from the test alone.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator

import numpy as np
import pytest

SEED = 26_041
"""No seed of a test's own, so that nothing is drawn twice."""


def seed_generators() -> None:
    """Torch's only where it is imported: light tests stay light."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(SEED)


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile `suite`, unless a profile or seed of Hypothesis is asked for."""
    if config.getoption("hypothesis_profile", None) or config.getoption("hypothesis_seed", None):
        return
    from hypothesis import settings

    settings.register_profile("suite", derandomize=True, deadline=None)  # a busy machine is no failure
    settings.load_profile("suite")


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        seed_generators()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Set up before all other fixtures of a test, and after those that it shares."""
    seed_generators()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    seed_generators()
    try:
        return (yield)
    finally:
        seed_generators()  # a test that asks for it late goes on alike, whether it is new or not
