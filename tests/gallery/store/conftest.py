"""The stores that every test of the contract is run against."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.open import create_store
from support.galleries import make_info

_numbers = count()


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[str]:
    """The URI of Milvus Lite, started as a server on the loopback: it stands in for a cluster."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        server, database, port = start_server_in_thread(data_dir=folder, host="127.0.0.1", port=0)
        yield f"milvus://127.0.0.1:{port}"
        server.stop(grace=None)
        database.close()


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
