"""What searches filter by, as columns in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Bools, Doubles, Ints
from slimreid.gallery.store.rows import Filter

_TEXTS = ("identity", "camera", "sample_group", "modalities")
_FIRST_ROOM = 1024


@dataclass
class TextColumn:
    """Texts as numbers of a vocabulary."""

    codes: NDArray[np.int32]
    names: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def encode(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Numbers of texts; new ones join the vocabulary."""
        codes = [self.numbers.setdefault(text, len(self.numbers)) for text in texts]
        if len(self.names) < len(self.numbers):
            self.names = list(self.numbers)
        return np.array(codes, dtype=np.int32)

    def matches(self, chosen: Sequence[str], rows: int) -> Bools:
        """(rows,): which of the first rows have one of these texts."""
        known = [self.numbers[text] for text in chosen if text in self.numbers]
        codes = self.codes[:rows]
        return codes == known[0] if len(known) == 1 else np.isin(codes, known)


class Columns:
    """The columns of n rows in the order of their ids; room is doubled as they grow."""

    def __init__(self) -> None:
        self.rows = 0
        self.ids: Ints = np.zeros(_FIRST_ROOM, dtype=np.int64)
        self.time: Doubles = np.zeros(_FIRST_ROOM)
        self.live: Bools = np.zeros(_FIRST_ROOM, dtype=np.bool_)
        self.texts = {name: TextColumn(np.zeros(_FIRST_ROOM, dtype=np.int32)) for name in _TEXTS}

    def put(self, lines: Sequence[Sequence[Any]]) -> None:
        """Take in rows, new or changed: (id, the texts, time, live) by id."""
        if not lines:
            return
        ids, *texts, time, live = zip(*lines, strict=True)
        numbers = np.array(ids, dtype=np.int64)
        known = self.rows
        new = numbers > (self.ids[known - 1] if known else 0)
        at = np.searchsorted(self.ids[:known], numbers)
        at[new] = known + np.arange(int(new.sum()))
        self.rows = known + int(new.sum())
        self._make_room(self.rows)
        self.ids[at] = numbers
        self.time[at] = np.array([np.nan if moment is None else moment for moment in time])
        self.live[at] = np.array(live, dtype=np.bool_)
        for column, given in zip(self.texts.values(), texts, strict=True):
            column.codes[at] = column.encode(given)

    def _make_room(self, rows: int) -> None:
        if rows <= len(self.ids):
            return
        room = max(rows, 2 * len(self.ids))
        self.ids, self.time, self.live = (_longer(a, room) for a in (self.ids, self.time, self.live))
        for column in self.texts.values():
            column.codes = _longer(column.codes, room)

    def select(self, which: Filter, n: int) -> Bools:
        """(n,): which of the first n rows a filter means."""
        live = self.live[:n]
        if which.is_all:
            return live
        chosen = np.ones(n, dtype=np.bool_) if which.removed is None else live != which.removed
        for name, texts in which.texts.items():
            chosen &= self.texts[name].matches(texts, n)
        if which.modalities is not None:
            column = self.texts["modalities"]
            wanted = set(which.modalities)
            chosen &= column.matches([name for name in column.names if wanted <= set(name.split("+"))], n)
        if which.ids is not None:
            chosen &= np.isin(self.ids[:n], np.asarray(which.ids, dtype=np.int64))
        if which.since is not None:
            chosen &= self.time[:n] >= which.since
        if which.until is not None:
            chosen &= self.time[:n] < which.until
        return chosen

    def names(self, column: str, at: Ints) -> tuple[str, ...]:
        """Texts of a column at some places."""
        found = self.texts[column]
        return tuple(found.names[code] for code in found.codes[at])


def _longer(array: Any, room: int) -> Any:
    longer = np.zeros(room, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
