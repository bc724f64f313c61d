"""Changes of a gallery in SQLite, their entries in the log, and how they are undone.

All functions run within a transaction of the caller.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping

from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.contract import GENERATION
from slimreid.gallery.store.rows import Change, RowState, to_columns
from slimreid.gallery.store.sqlite.statements import feature_key, to_blob


def version(connection: sqlite3.Connection) -> tuple[int, int]:
    """Epoch and revision."""
    sql = "SELECT (SELECT value FROM counters WHERE name = 'epoch'), (SELECT max(id) FROM revisions)"
    epoch, revision = connection.execute(sql).fetchone()
    return int(epoch), int(revision)


def new_revision(connection: sqlite3.Connection) -> int:
    """Begin a revision; its number."""
    _, last = version(connection)
    connection.execute("INSERT INTO revisions VALUES (?, ?)", (last + 1, secrets.randbits(62)))
    return last + 1


def apply_change(connection: sqlite3.Connection, change: Change, place: str) -> int:
    """Make a change and write its entry into the log; the entry."""
    revision = new_revision(connection)
    count = len(change.rows) + len(change.states) if change.count is None else change.count
    if change.continues is not None:
        entry = change.continues
        _check_open(connection, entry, place)
        connection.execute("UPDATE log SET count = count + ? WHERE id = ?", (count, entry))
    else:
        entry = write_entry(connection, change, count, undoable=change.undoes is None)
    if change.undoes is not None:
        _check_open(connection, change.undoes, place)
        connection.execute("UPDATE log SET undone_by = ? WHERE id = ?", (entry, change.undoes))
    _insert(connection, change, entry, revision)
    _set_states(connection, change.states, entry, revision, place)
    _set_settings(connection, change.settings, entry)
    if GENERATION in change.settings:
        _check_generation(connection, place)
    return entry


def write_entry(connection: sqlite3.Connection, change: Change, count: int, *, undoable: bool) -> int:
    """A new entry of the log; its number."""
    details = json.dumps(dict(change.details), ensure_ascii=False)
    cursor = connection.execute(
        "INSERT INTO log (time, by, operation, count, details, undoable) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), change.by, change.operation, count, details, undoable),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _check_open(connection: sqlite3.Connection, entry: int, place: str) -> None:
    """Raise `GalleryError` for an entry that is not there, cannot be undone, or has been."""
    line = connection.execute("SELECT undoable, undone_by FROM log WHERE id = ?", (entry,)).fetchone()
    if line is None or not line[0]:
        raise GalleryError(f"{place}: entry {entry} of the log is no change that can be undone")
    if line[1] is not None:
        raise GalleryError(f"{place}: entry {entry} of the log was undone by entry {line[1]} already")


def _insert(connection: sqlite3.Connection, change: Change, entry: int, revision: int) -> None:
    if not change.rows:
        return
    (last,) = connection.execute(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'rows'), 0)"
    ).fetchone()
    generation = _generation(connection)
    numbered = list(enumerate(change.rows, start=last + 1))
    connection.executemany(
        "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*to_columns(number, row).values(), revision) for number, row in numbered],
    )
    connection.executemany(
        "INSERT INTO features VALUES (?, ?, ?)",
        [(feature_key(generation, number), *to_blob(row.feature)) for number, row in numbered],
    )
    connection.executemany(
        "INSERT INTO thumbnails VALUES (?, ?)",
        [(number, row.thumbnail) for number, row in numbered if row.thumbnail],
    )
    connection.executemany(
        "INSERT INTO touched VALUES (?, ?, ?, ?, 1)",
        [(entry, number, row.identity, row.group) for number, row in numbered],
    )


def _set_states(
    connection: sqlite3.Connection, states: Mapping[int, RowState], entry: int, revision: int, place: str
) -> None:
    for number, state in states.items():
        # Of a row that one entry changes twice, what it was at first is what undoing needs.
        kept = connection.execute(
            "INSERT OR IGNORE INTO touched "
            "SELECT ?, id, identity, sample_group, removed FROM rows WHERE id = ?",
            (entry, number),
        )
        changed = connection.execute(
            "UPDATE rows SET identity = ?, sample_group = ?, removed = ?, revision = ? WHERE id = ?",
            (state.identity, state.group, state.removed, revision, number),
        )
        if not changed.rowcount or kept.rowcount > 1:
            raise GalleryError(f"{place}: there is no row {number}")


def _set_settings(connection: sqlite3.Connection, settings: Mapping[str, str | None], entry: int) -> None:
    if not settings:
        return
    now = dict(connection.execute("SELECT name, value FROM settings"))
    for name, value in settings.items():
        if value is None:
            connection.execute("DELETE FROM settings WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
    before = json.dumps({name: now.get(name) for name in settings})
    connection.execute("UPDATE log SET settings_before = ? WHERE id = ?", (before, entry))


def _generation(connection: sqlite3.Connection) -> int:
    """The generation in use."""
    return int(connection.execute("SELECT value FROM settings WHERE name = ?", (GENERATION,)).fetchone()[0])


def _check_generation(connection: sqlite3.Connection, place: str) -> None:
    """Raise `GalleryError` where a row has no feature in the generation in use."""
    sql = "SELECT id FROM rows WHERE NOT removed AND id | ? NOT IN (SELECT key FROM features) LIMIT 1"
    without = connection.execute(sql, (feature_key(_generation(connection), 0),)).fetchone()
    if without is not None:
        raise GalleryError(f"{place}: row {without[0]} has no feature of that model; embed it first")


def undoing(connection: sqlite3.Connection, entry: int, place: str) -> Change:
    """The change that undoes an entry; raises `GalleryError` where it cannot be undone."""
    _check_open(connection, entry, place)
    sql = "SELECT row, identity, sample_group, removed FROM touched WHERE entry = ? ORDER BY row"
    states = {
        row: RowState(identity, group, bool(removed))
        for row, identity, group, removed in connection.execute(sql, (entry,))
    }
    operation, count, before = connection.execute(
        "SELECT operation, count, settings_before FROM log WHERE id = ?", (entry,)
    ).fetchone()
    details = {"entry": entry, "operation": operation}
    settings = json.loads(before or "{}")
    return Change(
        "undo", "", details, states=states, settings=settings, count=len(states) or count, undoes=entry
    )
