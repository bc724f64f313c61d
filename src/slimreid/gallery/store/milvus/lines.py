"""Rows as lines of a Milvus collection, and filters as its conditions."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.milvus.collections import LONGEST, ROW_TEXTS, text_key
from slimreid.gallery.store.rows import Filter, NewRow, RowState, to_columns


def condition(which: Filter, modalities: Sequence[str]) -> str:
    """A filter as a condition; `modalities`: all combinations that rows have, such as `rgb+tir`."""
    parts = ["id > 0"]
    for name, texts in which.texts.items():
        parts.append(_is_in(f"{name}_key", [text_key(text) for text in texts]))
    if which.ids is not None:
        parts.append(_is_in("id", [int(number) for number in which.ids]))
    if which.since is not None:
        parts.append(f"time >= {float(which.since)!r}")
    if which.until is not None:
        parts.append(f"time < {float(which.until)!r}")
    if which.modalities is not None:
        wanted = set(which.modalities)
        fitting = [text for text in modalities if wanted <= set(text.split("+"))]
        parts.append(_is_in("modalities_key", [text_key(text) for text in fitting]))
    if which.removed is not None:
        parts.append(f"removed == {str(which.removed).lower()}")
    return " and ".join(parts)


def _is_in(name: str, values: Sequence[Any]) -> str:
    return f"{name} in {json.dumps(list(values))}" if values else "id < 0"


def to_line(number: int, row: NewRow) -> dict[str, Any]:
    """A new row as a line; raises `GalleryError` for texts that are too long for Milvus."""
    line = {
        **to_columns(number, row),
        "time": math.nan if row.time is None else float(row.time),
        "quality": math.nan if row.quality is None else float(row.quality),
        "thumbnail": base64.b64encode(row.thumbnail).decode(),
        "vector": row.feature,
    }
    line |= {f"{name}_key": text_key(line[name]) for name in (*ROW_TEXTS, "modalities")}
    for name, value in line.items():
        if isinstance(value, str) and len(value.encode("utf-8", "surrogateescape")) > LONGEST:
            raise GalleryError(
                f"row {number}: its {name} has more than the {LONGEST:,} bytes that Milvus takes"
            )
    return line


def state_fields(state: RowState) -> dict[str, Any]:
    """The fields that a change of a row writes."""
    keys = {"identity_key": text_key(state.identity), "sample_group_key": text_key(state.group)}
    return {**plain_state(state), **keys}


def plain_state(state: RowState) -> dict[str, Any]:
    """The same without the keys that are filtered by, as `touched` has it."""
    return {"identity": state.identity, "sample_group": state.group, "removed": state.removed}


def to_state(line: Mapping[str, Any]) -> RowState:
    """What `state_fields` gave."""
    return RowState(line["identity"], line["sample_group"], bool(line["removed"]))
