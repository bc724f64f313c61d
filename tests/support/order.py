"""A pytest plugin: `--shuffle SEED` runs files, and tests within each file, in another order."""

from __future__ import annotations

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, default=None, metavar="SEED", help="run the tests in a random order"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is None:
        return
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(str(item.path), []).append(item)
    draw = random.Random(seed)
    files = list(by_file.values())
    draw.shuffle(files)
    for tests in files:
        draw.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
