"""A pytest plugin: the slowest files first; `--shuffle SEED` runs files, and tests in them, in another order."""

from __future__ import annotations

import random

import pytest

SLOWEST = (
    "bulk/test_ray_engine.py",
    "test_docs.py",
    "training/distributed/test_nodes.py",
    "research/test_ship.py",
    "cli/test_quickstart.py",
    "exporting/test_graphs.py",
    "benchmarks/test_export.py",
    "training/checkpoint/test_resume.py",
    "training/distributed/test_processes.py",
    "training/test_full_epochs.py",
    "serve/test_server.py",
    "gallery/store/sqlite/test_kills.py",
    "suite/test_skips.py",
)
"""Files of over ten seconds. A process that meets one at the end keeps the others waiting."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, default=None, metavar="SEED", help="run the tests in a random order"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is None:
        items.sort(key=lambda item: not item.path.as_posix().endswith(SLOWEST))
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
