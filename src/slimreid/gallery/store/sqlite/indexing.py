"""The index in memory of a gallery in SQLite, brought up to date with whatever was committed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from slimreid.arrays import Bools, Floats, Ints
from slimreid.gallery.index.columns import Columns
from slimreid.gallery.index.memory import MemoryIndex
from slimreid.gallery.index.sidecar import Arrays, Key, Sidecar
from slimreid.gallery.store.rows import ModelInfo, split_modalities
from slimreid.gallery.store.sqlite.changes import version
from slimreid.gallery.store.sqlite.statements import ROW_MASK, feature_key, from_blobs

_AT_ONCE = 8192
"""Lines taken from the database at once."""


class IndexReader:
    """Keeps the index of one store; not for several threads at once."""

    def __init__(self, connection: sqlite3.Connection, folder: Path, place: str) -> None:
        self._connection, self._folder, self._place = connection, folder, place
        self._seen: tuple[int, int, int] | None = None
        """Epoch, revision and generation of what is in memory."""
        self._columns = Columns()
        self._index: MemoryIndex | None = None

    def current(self, model: ModelInfo, generation: int) -> MemoryIndex:
        """The index of the gallery as it is now."""
        epoch, revision = version(self._connection)
        now = (epoch, revision, generation)
        if self._index is not None and self._seen == now:
            return self._index
        follows = self._seen is not None and self._seen[0] == epoch
        if not follows:
            self._columns = Columns()
        self._update_columns(self._seen[1] if follows and self._seen else -1)
        arrays = Sidecar(self._folder, model.similarity, model.dimension).load(
            Key(epoch, generation, revision, self._token(revision)),
            lambda number, token: self._token(number) == token,
            lambda after: self._features(model, generation, after),
        )
        self._index = MemoryIndex(model.similarity, _without_unknown(arrays, self._columns), self._columns)
        self._seen = now
        return self._index

    def _update_columns(self, after: int) -> None:
        sql = (
            "SELECT id, identity, camera, sample_group, modalities, time, NOT removed FROM rows "
            "WHERE revision > ? ORDER BY id"
        )
        found = self._connection.execute(sql, (after,))
        while lines := found.fetchmany(_AT_ONCE):  # all at once would take as much memory as the features
            self._columns.put(lines)

    def _token(self, revision: int) -> int:
        """The token of a revision; -1 for one that is not there."""
        line = self._connection.execute("SELECT token FROM revisions WHERE id = ?", (revision,)).fetchone()
        return -1 if line is None else int(line[0])

    def _features(
        self, model: ModelInfo, generation: int, after: int
    ) -> Iterator[tuple[Ints, Floats, Bools]]:
        """Features of the rows after an id, by ascending id."""
        end = feature_key(generation + 1, 0)
        sql = (
            "SELECT key, checksum, vector, modalities FROM features JOIN rows ON id = key & ? "
            "WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
        )
        while True:
            begin = feature_key(generation, after)
            lines = self._connection.execute(sql, (ROW_MASK, begin, end, _AT_ONCE)).fetchall()
            if not lines:
                return
            ids = np.array([line[0] & ROW_MASK for line in lines], dtype=np.int64)
            seen = {text: [m in split_modalities(text) for m in model.modalities] for *_, text in lines}
            present = np.array([seen[line[3]] for line in lines], dtype=np.bool_)
            yield ids, from_blobs([line[:3] for line in lines], model.dimension, self._place), present
            after = int(ids[-1])

    def erase(self) -> None:
        """Remove the sidecar, and what is in memory."""
        self._seen = self._index = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _without_unknown(arrays: Arrays, columns: Columns) -> Arrays:
    """Only features of rows that the columns know; a row may have come between the two readings."""
    last = columns.ids[columns.rows - 1] if columns.rows else 0
    if not len(arrays) or arrays.ids[-1] <= last:
        return arrays
    end = int(np.searchsorted(arrays.ids, last, side="right"))
    return arrays[:end]
