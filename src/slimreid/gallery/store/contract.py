"""What every store of a gallery can do; `tests/gallery/store` runs one set of tests against all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from slimreid.arrays import Floats, Ints
from slimreid.gallery.store.rows import Change, Filter, Found, LogEntry, ModelInfo, NewRow, Row, whole_row
from slimreid.inference.similarity import Prepared, Similarity

GENERATION = "generation"
"""Setting: which generation of features is in use; `reembed` writes the next one and switches at its end."""
CALIBRATION = "calibration"
"""Setting: the calibration, as JSON."""


EVERYTHING = Filter()


class Store(Protocol):
    """Rows, features, thumbnails, settings and log of one gallery.

    All methods raise `GalleryError`, by kind: busy, full, damaged.
    """

    place: str
    """Path or URI."""

    @property
    def at_once(self) -> int:
        """Rows that one commit should bring where many are to come."""

    @property
    def model(self) -> ModelInfo:
        """The model that made the features in use."""

    @property
    def version(self) -> tuple[int, int]:
        """Two numbers that change whenever rows or features do, whoever changed them."""

    def settings(self) -> Mapping[str, str]:
        """Settings of the gallery."""

    def commit(self, change: Change) -> int:
        """Make a change, as a whole or not at all; its entry in the log.

        When this returns, the change is on disk. Raises `GalleryError` where it continues or undoes an entry
        that was undone meanwhile, or names a row that is not there.
        """

    def note(self, operation: str, by: str, count: int, details: Mapping[str, object]) -> int:
        """Put something that changes nothing (a search) into the log; its entry."""

    def rows(self, which: Filter = ..., limit: int | None = None, after: int = 0) -> list[Row]:
        """Rows that are meant, by ascending id, from the first after id `after`."""

    def count(self, which: Filter = ...) -> int:
        """How many rows are meant."""

    def identities(self) -> dict[str, int]:
        """Identity -> its rows, '' for the unknown, by name."""

    def features(self, ids: Sequence[int]) -> Floats:
        """Features (n, D) of rows; raises `GalleryError` for a row without one."""

    def thumbnails(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Thumbnails of those rows that have one."""

    def search(
        self, query: Prepared, k: int, which: Filter = ..., similarity: Similarity | None = None
    ) -> list[Found]:
        """For each query the k rows with the highest scores; those that share nothing are never found.

        `similarity`: that of the model with another scale; None = as it is.
        """

    def log(self, limit: int | None = None, undoable: bool | None = None) -> list[LogEntry]:
        """Entries of the log, newest first; `undoable`: only changes that can (still) be undone."""

    def before(self, entry: int) -> Change:
        """The change that undoes an entry, without `by`; raises `GalleryError` where it cannot be undone."""

    def forget(self, ids: Sequence[int], by: str) -> int:
        """Erase rows for good, everywhere; the entry of the log, which has no names. Cannot be undone."""

    def stage(self, generation: int, model: ModelInfo, features: Mapping[int, Floats]) -> None:
        """Keep features of another generation, which nobody sees until it is switched to."""

    def staged(self, generation: int) -> tuple[ModelInfo | None, Ints]:
        """The model of a generation, None for none, and the rows that have features in it."""

    def unstage(self, generation: int) -> None:
        """Throw away a generation that is not in use."""

    def check(self) -> list[str]:
        """What is wrong with the store as a whole, every byte read; empty for nothing."""

    def close(self) -> None:
        """Let go of files and connections."""


def row_chunks(store: Store, which: Filter = EVERYTHING, chunk: int = 4096) -> Iterator[list[Row]]:
    """The rows that are meant, by ascending id, `chunk` at a time."""
    after = 0
    while rows := store.rows(which, chunk, after):
        yield rows
        after = rows[-1].id


def whole_rows(store: Store, which: Filter, chunk: int = 1024) -> Iterator[list[tuple[int, NewRow]]]:
    """Ids and all that is needed to enrol the rows of a store elsewhere, `chunk` at a time."""
    for rows in row_chunks(store, which, chunk):
        ids = [row.id for row in rows]
        pictures, features = store.thumbnails(ids), store.features(ids)
        yield [
            (row.id, whole_row(row, feature, pictures.get(row.id, b"")))
            for row, feature in zip(rows, features, strict=True)
        ]
