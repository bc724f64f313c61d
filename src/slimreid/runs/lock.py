"""One training per folder: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slimreid.errors import TrainingError

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

LOCK_NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in `folder` within the block; it is made if it is not there.

    The lock belongs to this process alone: the kernel releases it when the process dies, and processes that
    load images do not inherit it. A folder that stays empty is removed again.

    Raises:
        TrainingError: Another process holds the lock; the message names it.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _acquire(folder)
    try:
        yield
    finally:
        (folder / LOCK_NAME).unlink(missing_ok=True)  # before it is released, so nobody waits for a dead file
        os.close(handle)
        if made:
            with suppress(OSError):  # it holds something by now
                folder.rmdir()


def _acquire(folder: Path) -> int:
    path = folder / LOCK_NAME
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(handle, path):  # its holder ended, and removed it, between our two calls
                os.close(handle)
                continue
        except OSError:
            holder = os.read(handle, 200).decode("utf-8", "replace").strip()
            os.close(handle)
            raise TrainingError(
                f"{folder}: {holder or 'another process'} is training in this folder; wait for it, stop it, "
                "or choose another --out"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return handle


def _is_at(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
