"""Erasing rows for good: vectors, thumbnails, what they were before, names and paths in the log, free pages.

The rows go in one transaction, which also notes that the file has to be written anew without them. A process
that dies before that is done leaves the note, and whoever opens the gallery next finishes the work.
"""

from __future__ import annotations

import json
import sqlite3
import time

from slimreid.data.manifest import images_from_json
from slimreid.gallery.errors import GalleryBusyError
from slimreid.gallery.store.rows import Change, without_words
from slimreid.gallery.store.sqlite.changes import new_revision, write_entry
from slimreid.gallery.store.sqlite.connection import WAIT
from slimreid.gallery.store.sqlite.indexing import IndexReader
from slimreid.gallery.store.sqlite.statements import feature_key

PENDING = "forgetting"
"""Setting: the file still has to be written anew."""


def erase(connection: sqlite3.Connection, ids: list[int], by: str) -> int:
    """Within a transaction: delete rows and every trace of them in the tables; the entry in the log."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS gone (row INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM gone")
    connection.executemany("INSERT OR IGNORE INTO gone VALUES (?)", [(number,) for number in ids])
    words = _words(connection)
    for (generation,) in connection.execute("SELECT generation FROM models").fetchall():
        keys = f"SELECT row | {feature_key(generation, 0)} FROM gone"
        connection.execute(f"DELETE FROM features WHERE key IN ({keys})")
    connection.execute("DELETE FROM touched WHERE row IN (SELECT row FROM gone)")
    deleted = connection.execute("DELETE FROM rows WHERE id IN (SELECT row FROM gone)").rowcount
    connection.execute("DELETE FROM gone")
    names = connection.execute("SELECT identity FROM rows UNION SELECT identity FROM touched")
    _redact(connection, words - {name for (name,) in names})
    connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'epoch'")
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, '1')", (PENDING,))
    new_revision(connection)
    return write_entry(connection, Change("forget", by), deleted, undoable=False)


def _words(connection: sqlite3.Connection) -> set[str]:
    """Everything in the rows that go by which somebody could be known."""
    found: set[str] = set()
    sql = "SELECT identity, sample_group, hash, files FROM rows WHERE id IN (SELECT row FROM gone)"
    for identity, group, digest, files in connection.execute(sql):
        found |= {identity, group, digest, *(image.path for image in images_from_json(files).values())}
    sql = "SELECT identity, sample_group FROM touched WHERE row IN (SELECT row FROM gone)"
    found |= {text for line in connection.execute(sql) for text in line}
    return found - {""}


def _redact(connection: sqlite3.Connection, words: set[str]) -> None:
    for number, details in list(connection.execute("SELECT id, details FROM log")):
        plain = json.loads(details)
        clean = without_words(plain, words)
        if clean != plain:
            text = json.dumps(clean, ensure_ascii=False)
            connection.execute("UPDATE log SET details = ? WHERE id = ?", (text, number))


def finish(connection: sqlite3.Connection, index: IndexReader) -> None:
    """Write the file anew without free pages, empty the write-ahead log, remove the sidecar.

    Raises `GalleryBusyError` where another process keeps old pages in use.
    """
    index.erase()
    connection.execute("VACUUM")
    _empty_wal(connection)
    connection.execute("DELETE FROM settings WHERE name = ?", (PENDING,))
    _empty_wal(connection)


def _empty_wal(connection: sqlite3.Connection) -> None:
    end = time.monotonic() + WAIT
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > end:
            raise GalleryBusyError("older pages are being read")
        time.sleep(0.05)
