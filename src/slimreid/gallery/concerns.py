"""Rows that should be looked at: bad images, near-duplicates, rows that are closer to somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slimreid.gallery.decisions.quality import CLOSER_TO_OTHER, DUPLICATE, NEAR_DUPLICATE
from slimreid.gallery.embedder import prepare
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter, Found, Row, in_parts
from slimreid.inference.similarity import Prepared, presence
from slimreid.progress import progress

_NEAREST = 16
"""Rows looked at around a row; where they are all of its own identity, nobody else is closer."""
_AT_ONCE = 256


@dataclass(frozen=True)
class Concern:
    """A row that something speaks against."""

    row: Row
    reasons: tuple[str, ...]


def find_concerns(store: Store, which: Filter, show_progress: bool | None = None) -> list[Concern]:
    """Rows of a filter that something speaks against, by id."""
    rows, info = store.rows(which), store.model
    found: list[Concern] = []
    for piece in progress(in_parts(rows, _AT_ONCE), "checking", show=show_progress):
        present = presence(info.modalities, [row.modalities for row in piece])
        query = prepare(info, store.features([row.id for row in piece]), present)
        reasons_near = neighbour_reasons(store, query, [(row.id, row.identity) for row in piece])
        for row, near in zip(piece, reasons_near, strict=True):
            if reasons := (*row.reasons, *near):
                found.append(Concern(row, reasons))
    return found


def neighbour_reasons(
    store: Store, query: Prepared, rows: Sequence[tuple[int, str]]
) -> list[tuple[str, ...]]:
    """For each row why it should be looked at, naming the other row; empty for nothing.

    `rows`: id and identity of what is searched for; 0 = it is not in the gallery.
    """
    plain = replace(store.model.similarity, impostors=None)
    alike = store.search(query, 2, Filter(), plain)
    nearest = store.search(query, _NEAREST, Filter())
    return [
        (*_duplicate(row, alike[n]), *_closer(store, row, identity, query[np.array([n])], nearest[n]))
        for n, (row, identity) in enumerate(rows)
    ]


def _duplicate(row: int, found: Found) -> tuple[str, ...]:
    for number, cosine in zip(found.ids.tolist(), found.scores.tolist(), strict=True):
        if number != row and cosine >= DUPLICATE:
            return (f"{NEAR_DUPLICATE} of row {number}",)
    return ()


def _closer(store: Store, row: int, identity: str, query: Prepared, found: Found) -> tuple[str, ...]:
    """Whether the best row of somebody else is above the best of the own identity, where that has any."""
    others = zip(found.ids.tolist(), found.identities, strict=True)
    number, name = next(((n, who) for n, who in others if n != row and who), (0, identity))
    if not identity or name == identity:
        return ()
    # Its own rows are further away than this one, or there are none to compare with.
    own = store.search(query, 2, Filter(identities=[identity]))[0]
    has_others = any(other != row for other in own.ids.tolist())
    return (f"{CLOSER_TO_OTHER}: row {number} ({name})",) if has_others else ()
