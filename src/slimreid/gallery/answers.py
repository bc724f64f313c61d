"""What searches answer, and how they are done: rows, or identities by their best row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

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
    """Rank in the list, from 1."""
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
    values = {name: value for name, value in vars(row).items() if name != "removed"}
    files = {name: ref.path for name, ref in row.files.items()}
    return {**values, "modalities": list(row.modalities), "files": files, "reasons": list(row.reasons)}


def search_gallery(
    store: Store, query: Query, k: int, which: Filter, by: str, *, identities: bool = False
) -> list[Answer]:
    """`find_answers`, noted in the log of the gallery."""
    answers = find_answers(store, query, k, which, identities=identities)
    details = {"queries": list(query.sources), "k": k, "identities": identities}
    store.note("search", by, sum(len(answer.matches) for answer in answers), details)
    return answers


def find_answers(
    store: Store,
    query: Query,
    k: int,
    which: Filter,
    similarity: Similarity | None = None,
    *,
    identities: bool = False,
) -> list[Answer]:
    """The k best rows for each query, or with `identities` the best row of each of the k best identities.

    Raises `ConfigError` for a k below 1.
    """
    if k < 1:
        raise ConfigError(f"at least 1 answer must be asked for, not {k}")
    find = partial(best_identities, store) if identities else store.search
    found = find(query.prepared, k, which, similarity)
    searched = store.count(which)
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


def best_identities(
    store: Store, query: Prepared, k: int, which: Filter, similarity: Similarity | None = None
) -> list[Found]:
    """The best row of each of the k best identities; rows without identity do not count.

    Rows are asked for in growing numbers until they hold enough identities.
    """
    results: dict[int, Found] = {}
    wanted, count = list(range(len(query))), 8 * k
    while wanted:
        found = store.search(query[np.array(wanted)], count, which, similarity)
        left = []
        for number, rows in zip(wanted, found, strict=True):
            first: dict[str, int] = {}
            for place, name in enumerate(rows.identities):
                if name:
                    first.setdefault(name, place)
            if len(first) < k and len(rows.ids) == count:
                left.append(number)
                continue
            chosen = list(first.values())[:k]
            names = tuple(rows.identities[i] for i in chosen)
            results[number] = Found(rows.ids[chosen], rows.scores[chosen], names)
        wanted, count = left, 8 * count
    return [results[number] for number in range(len(query))]
