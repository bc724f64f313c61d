"""A gallery on a Milvus server: features and filters there, log and undo in collections of their own."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from slimreid.arrays import Floats, Ints
from slimreid.errors import DataError
from slimreid.gallery.errors import GalleryDamagedError, GalleryError
from slimreid.gallery.store.contract import EVERYTHING, GENERATION
from slimreid.gallery.store.milvus import searching
from slimreid.gallery.store.milvus.collections import AT_ONCE, Collections
from slimreid.gallery.store.milvus.lines import condition
from slimreid.gallery.store.milvus.writing import Writer
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
    without_words,
)
from slimreid.inference.similarity import Prepared, Similarity

SETTING = "setting:"
_FIELDS, _LOG = COLUMNS.split(", "), LOG_COLUMNS.split(", ")
BULK_AT_ONCE = 32_768
"""Rows that go by the bucket at once."""


def connect(place: str, bucket: str | None = None) -> Collections:
    """The collections that `milvus://[user:password@]host[:port]/NAME` means; raises `GalleryError`.

    `bucket`: address of the one that the cluster itself uses; new rows then go by it, many at a time.
    """
    parts = urlsplit(place)
    name = parts.path.strip("/") or "gallery"
    if not parts.hostname or not name.isidentifier() or not name.isascii():
        raise GalleryError(f"{place}: write milvus://host:19530/NAME, the name in letters, digits and _")
    token = f"{parts.username}:{parts.password}" if parts.username else ""
    shown = f"milvus://{parts.hostname}:{parts.port or 19530}/{name}"
    return Collections(f"http://{parts.hostname}:{parts.port or 19530}", token, name, shown, bucket)


class MilvusStore:
    """A gallery on a server; see `Store` for what the methods do."""

    def __init__(self, place: str, bucket: str | None = None) -> None:
        """Open a gallery, and take back what a process that died left half done; raises `GalleryError`."""
        self._collections, self._bucket = connect(place, bucket), bucket
        self.place = self._collections.place
        self._writer = Writer(self._collections)
        if not self._collections.exists():
            raise GalleryError(f"{self.place}: no such gallery; make one with 'slimreid gallery create'")
        if "pending" in self._writer.state():
            with self._writer.turn():
                pass

    @classmethod
    def create(cls, place: str, model: ModelInfo, bucket: str | None = None) -> MilvusStore:
        """Make an empty gallery; raises `DataError` where there is one."""
        collections = connect(place)
        if collections.exists():
            raise DataError(f"{collections.place} exists; choose another name")
        collections.create_rows(1, model.dimension)
        collections.create()
        start = {"revision": "0", "epoch": "0", "next_row": "1", "next_entry": "1", "modalities": "[]"}
        Writer(collections).set_state(**start, **{"model:1": model.to_json(), f"{SETTING}{GENERATION}": "1"})
        collections.close()
        return cls(place, bucket)

    @property
    def at_once(self) -> int:
        """Rows that one commit should bring: by the bucket, each is a request and an import of the server."""
        return AT_ONCE if self._bucket is None else BULK_AT_ONCE

    @property
    def model(self) -> ModelInfo:
        """The model that made the features in use."""
        state = self._writer.state()
        try:
            return ModelInfo.from_json(state[f"model:{state[SETTING + GENERATION]}"])
        except KeyError:
            raise GalleryDamagedError(
                f"{self.place}: its state is incomplete; restore it from an export"
            ) from None

    @property
    def version(self) -> tuple[int, int]:
        """Epoch and revision."""
        state = self._writer.state()
        return int(state["epoch"]), int(state["revision"])

    def settings(self) -> Mapping[str, str]:
        """Settings of the gallery."""
        return {k.removeprefix(SETTING): v for k, v in self._writer.state().items() if k.startswith(SETTING)}

    def _rows_name(self) -> str:
        return f"rows_{self.settings()[GENERATION]}"

    def _condition(self, which: Filter) -> str:
        return condition(which, json.loads(self._writer.state()["modalities"]))

    def commit(self, change: Change) -> int:
        """Make a change; see `Store.commit`."""
        check_features(change.rows, self.model.dimension)
        return self._writer.commit(change)

    def note(self, operation: str, by: str, count: int, details: Mapping[str, object]) -> int:
        """Put a search into the log."""
        return self._writer.note(Change(operation, by, details), count)

    def rows(self, which: Filter = EVERYTHING, limit: int | None = None, after: int = 0) -> list[Row]:
        """Rows that are meant, by ascending id; Milvus gives them in no order, so range by range."""
        name, where, found = self._rows_name(), self._condition(which), list[Row]()
        if which.ids is not None or which.hashes is not None:  # a few rows, wherever they are
            return _sorted_rows(self._collections.ask(name, f"id > {after} and {where}", _FIELDS))[:limit]
        end = int(self._writer.state()["next_row"])
        while after + 1 < end and (limit is None or len(found) < limit):
            part = f"id > {after} and id <= {after + AT_ONCE} and {where}"
            found += _sorted_rows(self._collections.ask(name, part, _FIELDS))
            after += AT_ONCE
        return found[:limit]

    def count(self, which: Filter = EVERYTHING) -> int:
        """How many rows are meant."""
        return self._collections.count(self._rows_name(), self._condition(which))

    def identities(self) -> dict[str, int]:
        """Identity -> its rows, by name."""
        return dict(sorted(Counter(row.identity for row in self.rows()).items()))

    def features(self, ids: Sequence[int]) -> Floats:
        """Features (n, D) of rows."""
        found = searching.read_vectors(self._collections, self._rows_name(), ids)
        for number in ids:
            if int(number) not in found:
                raise GalleryError(f"{self.place}: row {number} has no feature; is it still in the gallery?")
        wide = np.zeros((0, self.model.dimension), dtype=np.float32)
        return np.stack([found[int(number)] for number in ids]) if len(ids) else wide

    def thumbnails(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Thumbnails of those rows that have one."""
        lines = self._collections.ask_rows(self._rows_name(), ids, ["id", "thumbnail"])
        return {int(line["id"]): base64.b64decode(line["thumbnail"]) for line in lines if line["thumbnail"]}

    def search(
        self, query: Prepared, k: int, which: Filter = EVERYTHING, similarity: Similarity | None = None
    ) -> list[Found]:
        """For each query the k rows with the highest scores."""
        return searching.search(
            self._collections,
            self._rows_name(),
            query,
            k,
            lambda seen: self._condition(which) + f' and modalities_key == "{seen}"',
            json.loads(self._writer.state()["modalities"]),
            similarity or self.model.similarity,
        )

    def log(self, limit: int | None = None, undoable: bool | None = None) -> list[LogEntry]:
        """Entries of the log, newest first."""
        found: list[LogEntry] = []
        last = int(self._writer.state()["next_entry"])
        where = " and undoable == true and undone_by == 0" if undoable else ""
        while last > 0 and (limit is None or len(found) < limit):
            lines = self._collections.ask("log", f"id < {last} and id >= {last - AT_ONCE}{where}", _LOG)
            entries = [to_entry([line[name] for name in _LOG]) for line in lines]
            found += sorted(entries, key=lambda entry: -entry.id)
            last -= AT_ONCE
        return found[:limit]

    def before(self, entry: int) -> Change:
        """The change that undoes an entry."""
        line = self._writer.open_entry(entry)
        states = self._writer.touched(f"entry == {entry}")
        settings = json.loads(line["settings_before"] or "{}")
        details = {"entry": entry, "operation": line["operation"]}
        count = len(states) or int(line["count"])
        return Change("undo", "", details, states=states, settings=settings, count=count, undoes=entry)

    def forget(self, ids: Sequence[int], by: str) -> int:
        """Erase rows for good; the server frees their place on the disk when it compacts."""
        numbers = json.dumps([int(number) for number in ids])
        rows = self.rows(Filter(ids=ids, removed=None))
        with self._writer.turn() as state:
            words = {
                w
                for row in rows
                for w in (row.identity, row.group, row.hash, *(f.path for f in row.files.values()))
            }
            before = self._collections.ask("touched", f"row in {numbers}", ["identity", "sample_group"])
            words |= {line[name] for line in before for name in ("identity", "sample_group")}
            generations = [key.removeprefix("model:") for key in state if key.startswith("model:")]
            for generation in generations:
                self._collections.remove(f"rows_{generation}", f"id in {numbers}")
            self._collections.remove("touched", f"row in {numbers}")
            self._redact(words - {""} - set(self.identities()))
            part = {"revision": str(int(state["revision"]) + 1), "epoch": str(int(state["epoch"]) + 1)}
            self._writer.set_state(**part)
        return self._writer.note(Change("forget", by), len(rows))

    def _redact(self, words: set[str]) -> None:
        for entry in self.log():
            clean = without_words(dict(entry.details), words)
            if clean != dict(entry.details):
                (line,) = self._collections.ask("log", f"id == {entry.id}", ["*"])
                self._writer.put_log({**line, "details": json.dumps(clean, ensure_ascii=False)})

    def stage(self, generation: int, model: ModelInfo, features: Mapping[int, Floats]) -> None:
        """Keep features of another generation."""
        with self._writer.turn():
            self._collections.create_rows(generation, model.dimension)
            self._writer.set_state(**{f"model:{generation}": model.to_json()})
            lines = self._collections.ask_rows(self._rows_name(), features, ["*"])
            new = [{**line, "vector": features[int(line["id"])].tolist()} for line in lines]
            self._collections.put(f"rows_{generation}", new)

    def staged(self, generation: int) -> tuple[ModelInfo | None, Ints]:
        """The model of a generation, and the rows that have features in it."""
        text = self._writer.state().get(f"model:{generation}")
        if text is None:
            return None, np.zeros(0, dtype=np.int64)
        end, found = int(self._writer.state()["next_row"]), list[int]()
        for start in range(0, end, AT_ONCE):
            part = f"id > {start} and id <= {start + AT_ONCE}"
            found += [int(line["id"]) for line in self._collections.ask(f"rows_{generation}", part, ["id"])]
        return ModelInfo.from_json(text), np.array(sorted(found), dtype=np.int64)

    def unstage(self, generation: int) -> None:
        """Throw away a generation that is not in use."""
        if self.settings()[GENERATION] == str(generation):
            raise GalleryError(f"{self.place}: generation {generation} is in use")
        with self._writer.turn():
            self._writer.set_state(**{f"model:{generation}": None})
            self._collections.drop(f"rows_{generation}")

    def check(self) -> list[str]:
        """What is wrong with the features; the server looks after its files."""
        faults: list[str] = []
        for ids in in_parts([row.id for row in self.rows()], AT_ONCE):
            broken = np.flatnonzero(~np.isfinite(self.features(ids)).all(axis=1))
            faults += [f"the feature of row {ids[number]} is not a number" for number in broken.tolist()]
        return faults

    def close(self) -> None:
        """End the connection."""
        self._collections.close()


def _sorted_rows(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    return sorted((to_row([line[name] for name in _FIELDS]) for line in lines), key=lambda row: row.id)
