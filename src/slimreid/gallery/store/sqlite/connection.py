"""Connections to SQLite: how they are set up, transactions, and its errors by our names."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slimreid.gallery.errors import GalleryBusyError, GalleryDamagedError, GalleryError, GalleryFullError

WAIT = 10.0
"""Seconds that a writer waits for another one."""

_KINDS = (
    ("locked", GalleryBusyError, "another process is writing to it; wait for it and try again"),
    ("full", GalleryFullError, "the disk is full, so nothing was changed; free some room and try again"),
    ("malformed", GalleryDamagedError, "it is damaged; restore it from a copy or an export"),
    ("not a database", GalleryDamagedError, "not a gallery, or damaged in its first page; restore a copy"),
    ("readonly", GalleryError, "it cannot be written, and every search is logged; copy it elsewhere"),
    ("disk i/o", GalleryError, "the disk does not read or write; see the system's log"),
    ("unable to open", GalleryError, "it cannot be opened; may you read and write it and its folder?"),
)
"""Words in SQLite's messages -> our error and what to do."""


def connect(path: Path, create: bool = False, durable: bool = True) -> sqlite3.Connection:
    """A connection in autocommit mode; with `durable`, what is committed is on the disk."""
    mode = "rwc" if create else "rw"
    with explained(str(path)):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}",
            uri=True,
            timeout=WAIT,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything in the block happens, or nothing; other writers wait."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled back already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn errors of SQLite into `GalleryError`s that name the gallery and the cure."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error).lower()
        for word, kind, cure in _KINDS:
            if word in text:
                raise kind(f"{place}: {cure} ({error})") from None
        raise GalleryError(f"{place}: {error}") from error
