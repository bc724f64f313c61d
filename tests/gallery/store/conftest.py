"""The stores that every test of the contract is run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.open import create_store
from support.galleries import make_info

_numbers = count()


@pytest.fixture(params=["sqlite", "milvus"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new gallery can be made."""
    if request.param == "milvus":
        return f"{request.getfixturevalue('milvus_server')}/people_{next(_numbers)}"
    return str(tmp_path / "people.gallery")


@pytest.fixture
def make_store(place: str) -> Iterator[Callable[..., Store]]:
    """Makes a store at `place`, closed in the end."""
    made: list[Store] = []

    def make(**options: object) -> Store:
        made.append(create_store(place, make_info(**options)))
        return made[-1]

    yield make
    for store in made:
        store.close()
