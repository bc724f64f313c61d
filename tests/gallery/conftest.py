"""A server for galleries that are not in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest


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
