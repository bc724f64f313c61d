"""Rows from elsewhere into a gallery, each only once; and whole copies, checked row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slimreid.gallery.errors import GalleryError, OtherModelError
from slimreid.gallery.store.contract import CALIBRATION, Store, whole_rows
from slimreid.gallery.store.rows import Change, Filter, ModelInfo, NewRow, in_parts, shared_fields, whole_row

_ASKED = 1024
"""Hashes that are looked up at once."""


@dataclass
class Transferred:
    """What became of rows from elsewhere."""

    entry: int | None = None
    """In the log; None where nothing was new."""
    added: int = 0
    known: int = 0
    """Rows that the gallery had already."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that have no feature, by their status."""


def check_same_model(store: Store, model: ModelInfo, where: str) -> None:
    """Raise `OtherModelError` unless rows from elsewhere have the features of this gallery."""
    own = store.model
    if (own.fingerprint, own.feature) != (model.fingerprint, model.feature):
        raise OtherModelError(
            f"{where}: features of another model ({model.fingerprint[:12]} {model.feature}, not "
            f"{own.fingerprint[:12]} {own.feature}); embed with the model of {store.place}, or reembed one "
            "of the two galleries"
        )


def take_in(
    store: Store,
    chunks: Iterable[Sequence[NewRow]],
    operation: str,
    by: str,
    settings: Mapping[str, str] | None = None,
) -> Transferred:
    """Add rows that are not in the gallery; each chunk is one commit, all are one entry of the log.

    A row is there already if one has its content; rows without a hash are compared by their features.
    """
    done = Transferred()
    for chunk in chunks:
        fresh = _fresh(store, chunk)
        done.known += len(chunk) - len(fresh)
        if fresh:
            done.entry = store.commit(Change(operation, by, {}, rows=fresh, continues=done.entry))
            done.added += len(fresh)
    missing = {name: text for name, text in (settings or {}).items() if name not in store.settings()}
    if missing:
        done.entry = store.commit(Change(operation, by, {}, settings=missing, continues=done.entry))
    return done


def _fresh(store: Store, rows: Sequence[NewRow]) -> list[NewRow]:
    seen: set[str] = set()
    for hashes in in_parts([row.hash for row in rows if row.hash], _ASKED):
        seen |= {row.hash for row in store.rows(Filter(hashes=hashes))}
    fresh = []
    for row in rows:
        is_known = row.hash in seen if row.hash else _is_there(store, row)
        if not is_known:
            seen.add(row.hash)
            fresh.append(row)
    return fresh


def _is_there(store: Store, row: NewRow) -> bool:
    """Whether a row of the same look and feature is in the gallery; for rows without a hash."""
    same = [other.id for other in store.rows(Filter(identities=[row.identity], hashes=[""]))]
    return bool(same) and bool((store.features(same) == row.feature).all(axis=1).any())


def copy_store(source: Store, target: Store, by: str) -> Transferred:
    """Copy all rows and the calibration into another gallery, then compare both row by row.

    Raises `GalleryError` naming the first row that is not the same.
    """
    check_same_model(target, source.model, source.place)
    kept = {name: text for name, text in source.settings().items() if name == CALIBRATION}
    chunks = ([row for _, row in chunk] for chunk in whole_rows(source, Filter()))
    done = take_in(target, chunks, "copy", by, kept)
    _compare(source, target)
    return done


def _compare(source: Store, target: Store) -> None:
    for chunk in whole_rows(source, Filter()):
        hashes = [row.hash for _, row in chunk if row.hash]
        there = {row.hash: row for row in target.rows(Filter(hashes=hashes))} if hashes else {}
        found = [there[row.hash].id for _, row in chunk if row.hash in there]
        features = dict(zip(found, target.features(found), strict=True)) if found else {}
        pictures = target.thumbnails(found)
        for number, row in chunk:
            if not row.hash:
                same = _is_there(target, row)
            elif other := there.get(row.hash):
                same = _is_same(row, whole_row(other, features[other.id], pictures.get(other.id, b"")))
            else:
                same = False
            if not same:
                raise GalleryError(
                    f"{target.place}: row {number} of {source.place} is not there, or not the same"
                )


def _is_same(first: NewRow, second: NewRow) -> bool:
    return (
        shared_fields(first) == shared_fields(second)
        and first.thumbnail == second.thumbnail
        and bool(np.array_equal(first.feature, second.feature))
    )
