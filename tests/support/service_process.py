"""Start, await and end a service in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

TESTS = Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(place: Path, port: int, seconds: float = 30.0) -> subprocess.Popen[bytes]:
    """A service that is ready."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "support.service_driver", str(place), str(port), str(seconds)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    for _ in range(600):
        try:
            with urlopen(f"http://127.0.0.1:{port}/v1/ready") as answer:
                if answer.status == 200:
                    return process
        except (URLError, OSError):
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"the service did not start: {process.communicate()[0].decode()}")


@contextmanager
def service_process(place: Path, seconds: float = 30.0) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port and the process of a service."""
    port = free_port()
    process = start(place, port, seconds)
    try:
        yield port, process
    finally:
        process.kill()
        process.communicate()
