"""What searches answer, and how they are done: rows, or identities by their best row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slimreid.errors import ConfigError
from slimreid.gallery.queries import Query
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter, Found, Row
from slimreid.inference.similarity import Prepared, Similarity


@dataclass(frozen=True)
class Match:
    """A row that was found."""

    rank: int
    """From 1."""
    score: float
    row: Row


@dataclass(frozen=True)
class Answer:
    """What was found for one query, best first."""

    query: str
    """A name for it: its first file, or its number."""
    modalities: tuple[str, ...]
    """Those of the query."""
    matches: tuple[Match, ...]
    searched: int
    """Rows that the filter left."""

    def to_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "query": self.query,
            "modalities": list(self.modalities),
            "searched": self.searched,
            "matches": [
                {"rank": match.rank, "score": match.score, **row_to_dict(match.row)} for match in self.matches
            ],
        }


def row_to_dict(row: Row) -> dict[str, object]:
    """A row, ready for JSON."""
    return {
        "id": row.id,
        "identity": row.identity,
        "group": row.group,
        "modalities": list(row.modalities),
        "camera": row.camera,
        "time": row.time,
        "files": {name: ref.path for name, ref in row.files.items()},
        "hash": row.hash,
        "quality": row.quality,
        "reasons": list(row.reasons),
    }


def best_rows(
    store: Store, query: Prepared, k: int, which: Filter, similarity: Similarity | None = None
) -> list[Found]:
    """The k best rows of each query; raises `ConfigError` for a k below 1."""
    if k < 1:
        raise ConfigError(f"at least 1 answer must be asked for, not {k}")
    return store.search(query, k, which, similarity)


def best_identities(
    store: Store, query: Prepared, k: int, which: Filter, similarity: Similarity | None = None
) -> list[Found]:
    """The best row of each of the k best identities; rows without identity do not count.

    Rows are asked for in growing numbers until they hold enough identities.
    """
    if k < 1:
        raise ConfigError(f"at least 1 answer must be asked for, not {k}")
    results: dict[int, Found] = {}
    wanted, count = list(range(len(query))), 8 * k
    while wanted:
        found = store.search(query[np.array(wanted)], count, which, similarity)
        left = []
        for number, rows in zip(wanted, found, strict=True):
            first = _first_of_each(rows)
            if len(first) < k and len(rows.ids) == count:
                left.append(number)
                continue
            chosen = first[:k]
            results[number] = Found(
                rows.ids[chosen], rows.scores[chosen], tuple(rows.identities[i] for i in chosen)
            )
        wanted, count = left, 8 * count
    return [results[number] for number in range(len(query))]


def _first_of_each(found: Found) -> list[int]:
    """Places of the first row of each identity."""
    first: dict[str, int] = {}
    for place, name in enumerate(found.identities):
        if name:
            first.setdefault(name, place)
    return list(first.values())


def make_answers(store: Store, query: Query, found: Sequence[Found], searched: int) -> list[Answer]:
    """Found rows with everything the gallery knows of them."""
    ids = sorted({int(number) for each in found for number in each.ids})
    rows = {row.id: row for row in store.rows(Filter(ids=ids))} if ids else {}
    return [
        Answer(
            name,
            modalities,
            tuple(
                Match(rank, float(score), rows[int(number)])
                for rank, (number, score) in enumerate(zip(each.ids, each.scores, strict=True), start=1)
                if int(number) in rows  # it may have been removed meanwhile
            ),
            searched,
        )
        for name, modalities, each in zip(query.names, query.modalities, found, strict=True)
    ]
