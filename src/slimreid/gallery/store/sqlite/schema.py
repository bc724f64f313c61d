"""The tables of a gallery in SQLite, and the file as such: making, opening and checking it."""

from __future__ import annotations

import os
import sqlite3
import uuid
from pathlib import Path

from slimreid.errors import DataError
from slimreid.gallery.errors import GalleryDamagedError, GalleryError
from slimreid.gallery.store.sqlite.connection import connect, explained

APPLICATION = 0x53524744
"""`application_id` in the header of the file: it is a gallery of SlimReID."""
VERSION = 1
"""`user_version`: of the tables below."""
PAGE = 16_384
"""Bytes of a page: features of 576 numbers fill it to 98 %, in the usual 4,096 to 56 %."""

TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE revisions (id INTEGER PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE models (generation INTEGER PRIMARY KEY, info TEXT NOT NULL);
CREATE TABLE log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    by TEXT NOT NULL,
    operation TEXT NOT NULL,
    count INTEGER NOT NULL,
    details TEXT NOT NULL,
    undoable INTEGER NOT NULL,
    undone_by INTEGER REFERENCES log (id),
    settings_before TEXT
);
CREATE INDEX log_undoable ON log (id) WHERE undoable;
CREATE TABLE rows (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL,
    sample_group TEXT NOT NULL,
    modalities TEXT NOT NULL,
    camera TEXT NOT NULL,
    time REAL,
    files TEXT NOT NULL,
    hash TEXT NOT NULL,
    quality REAL,
    reasons TEXT NOT NULL,
    removed INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE INDEX rows_identity ON rows (identity, removed);
CREATE INDEX rows_hash ON rows (hash);
CREATE INDEX rows_revision ON rows (revision);
CREATE TABLE thumbnails (row INTEGER PRIMARY KEY REFERENCES rows (id) ON DELETE CASCADE, jpeg BLOB NOT NULL);
CREATE TABLE features (key INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE TABLE touched (
    entry INTEGER NOT NULL REFERENCES log (id),
    row INTEGER NOT NULL,
    identity TEXT NOT NULL,
    sample_group TEXT NOT NULL,
    removed INTEGER NOT NULL,
    PRIMARY KEY (entry, row)
) WITHOUT ROWID;
INSERT INTO counters VALUES ('epoch', 0);
INSERT INTO revisions VALUES (0, 0);
"""
"""Every commit is a revision with a random token, by which two files that share a past are told apart;
`epoch` counts what cannot be followed row by row. `features.key` is generation << 40 | row, so that one
generation is one range of the table. `touched` keeps what rows were before an entry of the log changed them;
a new row was removed before."""

_SMALL_TABLES = ("settings", "counters", "revisions", "models", "log", "rows", "touched")


def create_file(path: Path, model: str) -> None:
    """Make an empty gallery whose features are of a model; raises `DataError` where a file exists."""
    if path.exists():
        raise DataError(f"{path} exists; choose another name, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: a killed process leaves no file that is no gallery.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    connection = connect(temporary, create=True)
    try:
        with explained(str(path)):
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
            connection.execute("INSERT INTO settings VALUES ('generation', '1')")
            connection.execute("INSERT INTO models VALUES (1, ?)", (model,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.close()
        os.link(temporary, path)  # unlike a renaming, never over a file that came meanwhile
    except FileExistsError:
        raise DataError(f"{path} exists; choose another name, or remove it first") from None
    finally:
        connection.close()
        temporary.unlink(missing_ok=True)


def open_file(path: Path) -> sqlite3.Connection:
    """A connection to a gallery whose tables were checked.

    Raises `GalleryError` for a file that is none, `GalleryDamagedError` for one that is not whole.
    """
    if not path.is_file():
        raise GalleryError(f"{path}: no such gallery; make one with 'slimreid gallery create'")
    connection = connect(path)
    try:
        with explained(str(path)):
            _check_header(path, connection)
            for table in _SMALL_TABLES:
                faults = quick_check(connection, table)
                if faults:
                    raise GalleryDamagedError(f"{path}: damaged ({faults[0]}); {RESCUE}")
    except BaseException:
        connection.close()
        raise
    return connection


RESCUE = "restore it from a copy or an export"


def _check_header(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise GalleryError(f"{path}: not a gallery; make one with 'slimreid gallery create'")
    if version != VERSION:
        age = "newer; update SlimReID" if version > VERSION else "older; export it with that version"
        raise GalleryError(f"{path}: written by a SlimReID that is {age}")


def quick_check(connection: sqlite3.Connection, table: str) -> list[str]:
    """What is wrong with the pages of a table; empty for nothing."""
    found = [row[0] for row in connection.execute(f"PRAGMA quick_check({table})")]
    return [] if found == ["ok"] else found
