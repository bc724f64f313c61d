"""SQL for rows: conditions, and features as bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from slimreid.arrays import Floats
from slimreid.gallery.errors import GalleryDamagedError
from slimreid.gallery.store.rows import Filter

SHIFT = 40
"""Bits of a row's number in `features.key`."""
ROW_MASK = (1 << SHIFT) - 1


def condition(which: Filter) -> tuple[str, list[Any]]:
    """A filter as the condition of a WHERE, and its values.

    Lists are passed as one JSON value: SQLite takes any number of them, and none by way of text.
    """
    parts: list[str] = []
    values: list[Any] = []
    lists: dict[str, Sequence[Any]] = {**which.texts}
    if which.ids is not None:
        lists["id"] = [int(number) for number in which.ids]
    for name, given in lists.items():
        parts.append(f"{name} IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(given)))
    for sign, moment in ((">=", which.since), ("<", which.until)):
        if moment is not None:
            parts.append(f"time {sign} ?")
            values.append(moment)
    for name in which.modalities or ():
        parts.append("instr('+' || modalities || '+', ?)")
        values.append(f"+{name}+")
    if which.removed is not None:
        parts.append("removed" if which.removed else "NOT removed")
    return " AND ".join(parts) or "1", values


def feature_key(generation: int, row: int) -> int:
    """Key of a row's feature in a generation."""
    return generation << SHIFT | row


def to_blob(feature: Floats) -> tuple[int, bytes]:
    """Checksum and bytes of a feature."""
    content = np.ascontiguousarray(feature, dtype="<f4").tobytes()
    return zlib.crc32(content), content


def from_blobs(found: Sequence[tuple[int, int, bytes]], dimension: int, place: str) -> Floats:
    """Features (n, D) of (key, checksum, bytes); raises `GalleryDamagedError` naming a bad row."""
    for key, checksum, content in found:
        if zlib.crc32(content) != checksum or len(content) != 4 * dimension:
            raise GalleryDamagedError(
                f"{place}: the feature of row {key & ROW_MASK} is damaged; remove the row, or restore a copy"
            )
    joined = b"".join(content for _, _, content in found)
    return np.frombuffer(joined, dtype="<f4").reshape(len(found), dimension).astype(np.float32, copy=False)
