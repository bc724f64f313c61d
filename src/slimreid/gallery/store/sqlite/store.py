"""A gallery in one SQLite file: rows, features, thumbnails, log and undo change in one transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.arrays import Floats, Ints
from slimreid.gallery.errors import GalleryBusyError, GalleryDamagedError, GalleryError
from slimreid.gallery.store.contract import EVERYTHING, GENERATION
from slimreid.gallery.store.rows import (
    COLUMNS,
    LOG_COLUMNS,
    Change,
    Filter,
    Found,
    LogEntry,
    ModelInfo,
    Row,
    check_features,
    in_parts,
    to_entry,
    to_row,
)
from slimreid.gallery.store.sqlite import changes, forgetting
from slimreid.gallery.store.sqlite.connection import connect, explained, transaction
from slimreid.gallery.store.sqlite.indexing import IndexReader
from slimreid.gallery.store.sqlite.schema import RESCUE, create_file, open_file
from slimreid.gallery.store.sqlite.statements import ROW_MASK, condition, feature_key, from_blobs, to_blob
from slimreid.inference.similarity import Prepared, Similarity

_AT_ONCE = 4096
"""Features read with one statement."""


class SqliteStore:
    """A gallery in one file; see `Store` for what the methods do. Threads may share it."""

    at_once = 1024

    def __init__(self, path: Path) -> None:
        """Open a gallery and check it; raises `GalleryError`."""
        self.place = str(path)
        self.path = path
        self._lock = threading.RLock()
        self._connection = open_file(path)
        self._notes: sqlite3.Connection | None = None
        self._models: dict[int, ModelInfo] = {}
        self._index = IndexReader(self._connection, path.with_name(path.name + ".index"), self.place)
        # Another process may be reading: then the next who opens it finishes the work.
        with suppress(GalleryBusyError), self._lock, explained(self.place):
            if forgetting.PENDING in self.settings():
                forgetting.finish(self._connection, self._index)

    @classmethod
    def create(cls, path: Path, model: ModelInfo) -> SqliteStore:
        """Make an empty gallery; raises `DataError` where the file exists."""
        create_file(path, model.to_json())
        return cls(path)

    @property
    def model(self) -> ModelInfo:
        """The model that made the features in use."""
        generation = self.generation
        with self._lock:
            if generation not in self._models:
                found, _ = self.staged(generation)
                if found is None:
                    raise GalleryDamagedError(f"{self.place}: nothing is known of its model; {RESCUE}")
                self._models = {generation: found}
            return self._models[generation]

    @property
    def generation(self) -> int:
        """Which generation of features is in use."""
        return int(self.settings()[GENERATION])

    @property
    def version(self) -> tuple[int, int]:
        """Epoch and revision."""
        with self._lock, explained(self.place):
            return changes.version(self._connection)

    def settings(self) -> Mapping[str, str]:
        """Settings of the gallery."""
        return dict(self._ask("SELECT name, value FROM settings"))

    def _ask(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, explained(self.place):
            return self._connection.execute(sql, values).fetchall()

    def commit(self, change: Change) -> int:
        """Make a change; see `Store.commit`."""
        check_features(change.rows, self.model.dimension)
        with self._lock, explained(self.place), transaction(self._connection):
            return changes.apply_change(self._connection, change, self.place)

    def note(self, operation: str, by: str, count: int, details: Mapping[str, object]) -> int:
        """Put a search into the log; it survives a killed process, not necessarily a power cut."""
        with self._lock, explained(self.place):
            if self._notes is None:
                # Waiting for the disk would take longer than the search itself.
                self._notes = connect(self.path, durable=False)
            return changes.write_entry(self._notes, Change(operation, by, details), count, undoable=False)

    def rows(self, which: Filter = EVERYTHING, limit: int | None = None, after: int = 0) -> list[Row]:
        """Rows that are meant, by ascending id."""
        where, values = condition(which)
        sql = f"SELECT {COLUMNS} FROM rows WHERE {where} AND id > ? ORDER BY id LIMIT ?"
        return [to_row(line) for line in self._ask(sql, [*values, after, -1 if limit is None else limit])]

    def count(self, which: Filter = EVERYTHING) -> int:
        """How many rows are meant."""
        where, values = condition(which)
        return int(self._ask(f"SELECT count(*) FROM rows WHERE {where}", values)[0][0])

    def identities(self) -> dict[str, int]:
        """Identity -> its rows, by name."""
        sql = "SELECT identity, count(*) FROM rows WHERE NOT removed GROUP BY identity ORDER BY identity"
        return dict(self._ask(sql))

    def features(self, ids: Sequence[int]) -> Floats:
        """Features (n, D) of rows."""
        generation = self.generation
        sql, found = "SELECT key, checksum, vector FROM features WHERE key = ?", []
        with self._lock, explained(self.place):
            for row in ids:
                line = self._connection.execute(sql, (feature_key(generation, row),)).fetchone()
                if line is None:
                    raise GalleryError(f"{self.place}: row {row} has no feature; is it still in the gallery?")
                found.append(line)
        return from_blobs(found, self.model.dimension, self.place)

    def thumbnails(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Thumbnails of those rows that have one."""
        where, values = condition(Filter(ids=ids, removed=None))
        sql = f"SELECT row, jpeg FROM thumbnails WHERE row IN (SELECT id FROM rows WHERE {where})"
        return dict(self._ask(sql, values))

    def search(
        self, query: Prepared, k: int, which: Filter = EVERYTHING, similarity: Similarity | None = None
    ) -> list[Found]:
        """For each query the k rows with the highest scores."""
        if which.hashes is not None:  # the index knows no hashes
            which = Filter(ids=[row.id for row in self.rows(which)], removed=None)
        with self._lock, explained(self.place):
            index = self._index.current(self.model, self.generation)
        return index.search(query, k, which, similarity)

    def log(self, limit: int | None = None, undoable: bool | None = None) -> list[LogEntry]:
        """Entries of the log, newest first."""
        where = "undoable AND undone_by IS NULL" if undoable else "1"
        sql = f"SELECT {LOG_COLUMNS} FROM log WHERE {where} ORDER BY id DESC LIMIT ?"
        return [to_entry(line) for line in self._ask(sql, (-1 if limit is None else limit,))]

    def before(self, entry: int) -> Change:
        """The change that undoes an entry."""
        with self._lock, explained(self.place):
            return changes.undoing(self._connection, entry, self.place)

    def forget(self, ids: Sequence[int], by: str) -> int:
        """Erase rows for good."""
        with self._lock, explained(self.place):
            with transaction(self._connection):
                entry = forgetting.erase(self._connection, list(ids), by)
            try:
                forgetting.finish(self._connection, self._index)
            except (sqlite3.OperationalError, GalleryBusyError) as error:
                raise GalleryBusyError(
                    f"{self.place}: the rows are erased from the gallery, but another process has old pages "
                    f"in use ({error}); they go when the gallery is opened after it has ended"
                ) from None
        return entry

    def stage(self, generation: int, model: ModelInfo, features: Mapping[int, Floats]) -> None:
        """Keep features of another generation."""
        lines = [(feature_key(generation, row), *to_blob(feature)) for row, feature in features.items()]
        with self._lock, explained(self.place), transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO models VALUES (?, ?)", (generation, model.to_json())
            )
            self._connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", lines)

    def staged(self, generation: int) -> tuple[ModelInfo | None, Ints]:
        """The model of a generation, and the rows that have features in it."""
        bounds = feature_key(generation, 0), feature_key(generation + 1, 0)
        with self._lock:
            models = self._ask("SELECT info FROM models WHERE generation = ?", (generation,))
            if not models:
                return None, np.zeros(0, dtype=np.int64)
            keys = self._ask("SELECT key FROM features WHERE key >= ? AND key < ?", bounds)
        return ModelInfo.from_json(models[0][0]), np.array(
            [key & ROW_MASK for (key,) in keys], dtype=np.int64
        )

    def unstage(self, generation: int) -> None:
        """Throw away a generation that is not in use."""
        bounds = feature_key(generation, 0), feature_key(generation + 1, 0)
        with self._lock, explained(self.place), transaction(self._connection):
            if self.generation == generation:
                raise GalleryError(f"{self.place}: generation {generation} is in use")
            self._connection.execute("DELETE FROM features WHERE key >= ? AND key < ?", bounds)
            self._connection.execute("DELETE FROM models WHERE generation = ?", (generation,))

    def check(self) -> list[str]:
        """What is wrong with the file, every page and feature read."""
        faults = [text for (text,) in self._ask("PRAGMA integrity_check") if text != "ok"]
        faults += [f"broken reference: {line}" for line in self._ask("PRAGMA foreign_key_check")]
        for ids in in_parts([row.id for row in self.rows()], _AT_ONCE):
            try:
                self.features(ids)
            except GalleryError as error:
                faults.append(str(error))
        return faults

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            for connection in (self._notes, self._connection):
                if connection is not None:
                    connection.close()
