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
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymilvus import DataType, MilvusClient, MilvusException  # type: ignore[import-untyped, unused-ignore]

from slimreid.gallery.errors import GalleryError

AT_ONCE = 1024
"""Rows asked for or written with one request."""
MOST = 16_384
"""Lines that the server gives for one request at most."""
LONGEST = 65_535
"""Bytes of a text at most."""
_ROW_TEXTS = ("identity", "sample_group", "camera", "hash")
"""Columns of rows that are filtered by their key."""


_QUIET = {"grpc.keepalive_time_ms": 300_000}
"""The client's usual ping every ten seconds makes servers hang up (too_many_pings)."""
_TRIES = 3


def _connect(uri: str, token: str) -> MilvusClient:
    """Connect to a server; again where a connection that it has just hung up on is in the way."""
    for _ in range(_TRIES - 1):
        try:
            return MilvusClient(uri=uri, token=token, grpc_options=_QUIET)
        except MilvusException:
            continue
    return MilvusClient(uri=uri, token=token, grpc_options=_QUIET)


class Collections:
    """A connection to a server and the collections of one gallery."""

    def __init__(self, uri: str, token: str, name: str, place: str) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # errors are raised, and named by us
        self.name, self.place = name, place
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
        short, long = {"max_length": 512}, {"max_length": LONGEST}
        self._create(
            "touched",
            ("key", DataType.VARCHAR, short),
            [
                ("entry", DataType.INT64, {}),
                ("part", DataType.INT64, {}),
                ("row", DataType.INT64, {}),
                ("identity", DataType.VARCHAR, long),
                ("sample_group", DataType.VARCHAR, long),
                ("removed", DataType.BOOL, {}),
            ],
        )
        self._create(
            "log",
            ("id", DataType.INT64, {}),
            [
                ("time", DataType.DOUBLE, {}),
                ("by", DataType.VARCHAR, long),
                ("operation", DataType.VARCHAR, short),
                ("count", DataType.INT64, {}),
                ("details", DataType.VARCHAR, long),
                ("undoable", DataType.BOOL, {}),
                ("undone_by", DataType.INT64, {}),
                ("settings_before", DataType.VARCHAR, long),
            ],
        )
        self._create("state", ("key", DataType.VARCHAR, short), [("value", DataType.VARCHAR, long)])

    def create_rows(self, generation: int, dimension: int) -> None:
        """Make the collection of a generation, if it is not there."""
        long = {"max_length": LONGEST}
        texts = [(name, DataType.VARCHAR, long) for name in (*_ROW_TEXTS, "modalities", "files", "reasons")]
        keys = [(f"{name}_key", DataType.VARCHAR, {"max_length": 64}) for name in (*_ROW_TEXTS, "modalities")]
        others = [
            ("time", DataType.DOUBLE, {}),
            ("quality", DataType.DOUBLE, {}),
            ("removed", DataType.BOOL, {}),
            ("thumbnail", DataType.VARCHAR, long),
        ]
        self._create(f"rows_{generation}", ("id", DataType.INT64, {}), [*texts, *keys, *others], dimension)

    def _create(
        self,
        name: str,
        key: tuple[str, Any, dict[str, Any]],
        fields: Sequence[tuple[str, Any, dict[str, Any]]],
        dimension: int = 2,
    ) -> None:
        whole = f"{self.name}_{name}"
        with self.explained():
            if self.client.has_collection(whole):
                return
            schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(key[0], key[1], is_primary=True, **key[2])
            for field, kind, options in fields:
                schema.add_field(field, kind, **options)
            # Every collection of Milvus has a vector, needed or not.
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
        for start in range(0, len(lines), AT_ONCE):
            part = [{"vector": [0.0, 0.0], **line} for line in lines[start : start + AT_ONCE]]
            with self.explained():
                self.client.upsert(f"{self.name}_{name}", part)

    def ask(self, name: str, condition: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        """Lines for which a condition holds, in no order."""
        whole, wanted = f"{self.name}_{name}", list(fields)
        with self.explained():
            found = self.client.query(whole, filter=condition, output_fields=wanted, limit=MOST)
            lines = [dict(line) for line in found]
            if len(lines) < MOST:
                return lines
            pages = self.client.query_iterator(
                whole, batch_size=AT_ONCE, filter=condition, output_fields=wanted
            )
            lines = []
            while page := pages.next():
                lines += [dict(line) for line in page]
            pages.close()
            return lines

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
