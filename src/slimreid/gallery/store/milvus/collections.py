"""The collections of a gallery on Milvus, and how they are asked.

| collection        | holds                                                               |
|-------------------|---------------------------------------------------------------------|
| `NAME_state`      | settings, counters, models, what is being changed, who is writing   |
| `NAME_log`        | the log                                                             |
| `NAME_touched`    | what rows were before an entry of the log changed them              |
| `NAME_rows_G`     | rows and features of generation G                                   |

Texts are filtered by their hash, so that no name can be taken for a part of a condition.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pymilvus import DataType, MilvusClient, MilvusException  # type: ignore[import-untyped, unused-ignore]

from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.milvus.bulk_import import Bucket, Jobs
from slimreid.gallery.store.rows import in_parts

AT_ONCE = 1024
"""Rows asked for or written with one request."""
MOST = 16_384
"""Lines that the server gives for one request at most."""
LONGEST = 65_535
"""Bytes of a text at most."""
BULK_LEAST = 4 * AT_ONCE
"""Lines from which on the bucket of a cluster is worth the way."""
ROW_TEXTS = ("identity", "sample_group", "camera", "hash")
"""Columns of rows that are filtered by their key."""

Field = tuple[str, Any, dict[str, Any]]
"""Name, type and options of a column."""
_SHORT, _LONG = {"max_length": 512}, {"max_length": LONGEST}
_TOUCHED: list[Field] = [
    ("key", DataType.VARCHAR, _SHORT),
    ("entry", DataType.INT64, {}),
    ("part", DataType.INT64, {}),
    ("row", DataType.INT64, {}),
    ("identity", DataType.VARCHAR, _LONG),
    ("sample_group", DataType.VARCHAR, _LONG),
    ("removed", DataType.BOOL, {}),
]
_ROWS: list[Field] = [
    ("id", DataType.INT64, {}),
    *((name, DataType.VARCHAR, _LONG) for name in (*ROW_TEXTS, "modalities", "files", "reasons")),
    *((f"{name}_key", DataType.VARCHAR, {"max_length": 64}) for name in (*ROW_TEXTS, "modalities")),
    ("time", DataType.DOUBLE, {}),
    ("quality", DataType.DOUBLE, {}),
    ("removed", DataType.BOOL, {}),
    ("thumbnail", DataType.VARCHAR, _LONG),
]
_PARQUET = {
    DataType.VARCHAR: pa.string(),
    DataType.INT64: pa.int64(),
    DataType.DOUBLE: pa.float64(),
    DataType.BOOL: pa.bool_(),
}
_NO_VECTOR = [0.0, 0.0]
"""Every collection of Milvus has a vector, needed or not."""
_QUIET = {"grpc.keepalive_time_ms": 300_000}
"""The client's usual ping every ten seconds makes servers hang up (too_many_pings)."""
_TRIES = 3


def _connect(uri: str, token: str) -> MilvusClient:
    """Connect to a server; again where a connection that it has just hung up on is in the way."""
    for _ in range(_TRIES - 1):
        with suppress(MilvusException):
            return MilvusClient(uri=uri, token=token, grpc_options=_QUIET)
    return MilvusClient(uri=uri, token=token, grpc_options=_QUIET)


class Collections:
    """A connection to a server and the collections of one gallery."""

    def __init__(self, uri: str, token: str, name: str, place: str, bucket: str | None = None) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # errors are raised, and named by us
        self.name, self.place = name, place
        self._jobs = Jobs(uri, token, place)
        self._bucket = None if bucket is None else Bucket(bucket, name)
        with self.explained():
            self.client = _connect(uri, token)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of Milvus into `GalleryError`s that name the gallery."""
        try:
            yield
        except MilvusException as error:
            raise GalleryError(
                f"{self.place}: the server refuses ({error.message or error}); is it well?"
            ) from None

    def exists(self) -> bool:
        """Whether there is a gallery of this name."""
        with self.explained():
            return bool(self.client.has_collection(f"{self.name}_state"))

    def create(self) -> None:
        """Make the collections that every gallery has; the state last, as it makes the gallery."""
        self._create("touched", _TOUCHED)
        self._create(
            "log",
            [
                ("id", DataType.INT64, {}),
                ("time", DataType.DOUBLE, {}),
                ("by", DataType.VARCHAR, _LONG),
                ("operation", DataType.VARCHAR, _SHORT),
                ("count", DataType.INT64, {}),
                ("details", DataType.VARCHAR, _LONG),
                ("undoable", DataType.BOOL, {}),
                ("undone_by", DataType.INT64, {}),
                ("settings_before", DataType.VARCHAR, _LONG),
            ],
        )
        self._create("state", [("key", DataType.VARCHAR, _SHORT), ("value", DataType.VARCHAR, _LONG)])

    def create_rows(self, generation: int, dimension: int) -> None:
        """Make the collection of a generation, if it is not there."""
        self._create(f"rows_{generation}", _ROWS, dimension)

    def _create(self, name: str, fields: Sequence[Field], dimension: int = len(_NO_VECTOR)) -> None:
        """Make a collection, whose first field is the key, if it is not there."""
        whole = f"{self.name}_{name}"
        with self.explained():
            if self.client.has_collection(whole):
                return
            schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
            for number, (field, kind, options) in enumerate(fields):
                schema.add_field(field, kind, is_primary=number == 0, **options)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
            index = self.client.prepare_index_params()
            index.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
            self.client.create_collection(whole, schema=schema, consistency_level="Strong")
            # An empty collection has nothing to index: waiting for it costs half a second each.
            self.client.create_index(whole, index, sync=False)
            self.client.load_collection(whole)

    def drop(self, name: str) -> None:
        """Remove a collection with all that is in it."""
        with self.explained():
            self.client.drop_collection(f"{self.name}_{name}")

    def put(self, name: str, lines: Sequence[dict[str, Any]]) -> None:
        """Write whole lines, new or in place of those with the same key."""
        for part in in_parts(lines, AT_ONCE):
            with self.explained():
                self.client.upsert(f"{self.name}_{name}", [{"vector": _NO_VECTOR, **line} for line in part])

    def takes_bulk(self, lines: int) -> bool:
        """Whether so many new lines go by the bucket of the cluster."""
        return self._bucket is not None and lines >= BULK_LEAST

    def settle(self, names: Sequence[str], meanwhile: Callable[[], None]) -> None:
        """Wait for the import jobs that a process left which died, and remove its files from the bucket.

        Raises `GalleryError` where the server has no bulk import, or the bucket cannot be written.
        """
        for name in names:
            self._jobs.wait_for_all(f"{self.name}_{name}", meanwhile)
        if self._bucket is not None:
            self._bucket.clear()

    def load(self, name: str, lines: Sequence[dict[str, Any]], meanwhile: Callable[[], None]) -> None:
        """Write lines of rows, or of what was touched, by the bucket; their keys must be new.

        `meanwhile` is called again and again while the server works.
        """
        assert self._bucket is not None
        fields = _TOUCHED if name == "touched" else _ROWS
        columns = pa.schema(
            [*((field, _PARQUET[kind]) for field, kind, _ in fields), ("vector", pa.list_(pa.float32()))]
        )
        file = self._bucket.put([{"vector": _NO_VECTOR, **line} for line in lines], columns)
        try:
            added = self._jobs.wait(self._jobs.start(f"{self.name}_{name}", file), meanwhile)
        finally:
            self._bucket.remove(file)
        if added != len(lines):
            raise GalleryError(f"{self.place}: the server imported {added:,} of {len(lines):,} rows")

    def ask(self, name: str, condition: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Lines for which a condition holds, in no order."""
        whole, wanted = f"{self.name}_{name}", list(fields)
        with self.explained():
            found = self.client.query(whole, filter=condition, output_fields=wanted, limit=MOST)
            lines = [dict(line) for line in found]
            if len(lines) < MOST:
                return lines
            pages = self.client.query_iterator(whole, AT_ONCE, filter=condition, output_fields=wanted)
            lines = []
            while page := pages.next():
                lines += [dict(line) for line in page]
            pages.close()
            return lines

    def ask_rows(self, name: str, ids: Iterable[int], fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Lines of those rows that are there, in no order."""
        for part in in_parts([int(number) for number in ids], AT_ONCE):
            yield from self.ask(name, f"id in {json.dumps(part)}", fields)

    def remove(self, name: str, condition: str) -> None:
        """Delete the lines for which a condition holds."""
        with self.explained():
            self.client.delete(f"{self.name}_{name}", filter=condition)

    def count(self, name: str, condition: str) -> int:
        """How many lines a condition holds for."""
        with self.explained():
            found = self.client.query(f"{self.name}_{name}", filter=condition, output_fields=["count(*)"])
            return int(found[0]["count(*)"])

    def close(self) -> None:
        """End the connection."""
        self.client.close()


def text_key(text: str) -> str:
    """By what a text is filtered."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
