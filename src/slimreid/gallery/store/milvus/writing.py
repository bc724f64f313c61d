"""Changes of a gallery on Milvus, which has no transactions.

What is about to change is written down first (`pending` in the state, then what rows were before in
`touched`), then it is done, then the note is taken away. Whoever opens the gallery or writes next finds the
note of a process that died and takes everything back, so a change is there as a whole or not at all; a reader
may see parts of one while it is being made. Writers take turns by a note with their name, which runs out by
itself.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from slimreid.gallery.errors import GalleryBusyError, GalleryError
from slimreid.gallery.store.contract import GENERATION
from slimreid.gallery.store.milvus.collections import AT_ONCE, LONGEST, Collections
from slimreid.gallery.store.milvus.lines import plain_state, state_fields, to_line, to_state
from slimreid.gallery.store.rows import LOG_COLUMNS, Change, RowState, in_parts

WAIT = 10.0
"""Seconds that a writer waits for another one."""
LEASE = 60.0
"""Seconds after which the note of a writer that died runs out."""
SETTLE = 0.02
"""Seconds after which two writers that came at once see who was last."""
KEPT = 50
"""Items of a list in the log that are kept where it is too long."""
_LOG = (*LOG_COLUMNS.split(", "), "settings_before")
_STATE = ("identity", "sample_group", "removed")


class Writer:
    """Reads and writes the state of a gallery, and makes changes."""

    def __init__(self, collections: Collections) -> None:
        self.collections = collections
        self._token = ""

    def state(self) -> dict[str, str]:
        """Everything in the state."""
        lines = self.collections.ask("state", 'key != ""', ["key", "value"])
        return {line["key"]: line["value"] for line in lines}

    def set_state(self, **values: str | None) -> None:
        """Write entries of the state; None = take it away."""
        self.collections.put("state", [{"key": k, "value": v} for k, v in values.items() if v is not None])
        for key in [k for k, v in values.items() if v is None]:
            self.collections.remove("state", f'key == "{key}"')

    @contextmanager
    def turn(self) -> Iterator[dict[str, str]]:
        """Wait until nobody else writes; gives the state, with what a dead writer left taken back."""
        who = f"{getpass.getuser()}, process {os.getpid()} on {socket.gethostname()}"
        self._token = f"{who} ({uuid.uuid4().hex[:8]})"
        end = time.monotonic() + WAIT
        while True:
            holder = json.loads(self.state().get("writer", "{}"))
            if not holder or holder["until"] < time.time():
                self._renew()
                time.sleep(SETTLE)
                if json.loads(self.state().get("writer", "{}")).get("who") == self._token:
                    break
            elif time.monotonic() > end:
                raise GalleryBusyError(
                    f"{self.collections.place}: {holder['who']} is writing to it; try again"
                )
            time.sleep(SETTLE)
        try:
            state = self.state()
            if "pending" in state:
                self._take_back(json.loads(state["pending"]))
                state = self.state()
            yield state
        finally:
            self.set_state(writer=None)

    def _renew(self) -> None:
        """Write the note that this process is writing, for another while."""
        self.set_state(writer=json.dumps({"who": self._token, "until": time.time() + LEASE}))

    def commit(self, change: Change) -> int:
        """Make a change; its entry in the log."""
        with self.turn() as state:
            return self._commit(change, state)

    def _commit(self, change: Change, state: Mapping[str, str]) -> int:
        part, first = int(state["revision"]) + 1, int(state["next_row"])
        entry = change.continues if change.continues is not None else int(state["next_entry"])
        continued = None if change.continues is None else self.open_entry(change.continues)
        if change.undoes is not None:
            self.open_entry(change.undoes)
        generation = int(state[f"setting:{GENERATION}"])
        before = self._states(generation, change.states)
        if missing := set(change.states) - set(before):
            raise GalleryError(f"{self.collections.place}: there is no row {min(missing)}")
        new = dict(enumerate(change.rows, start=first))
        lines = [to_line(number, row) for number, row in new.items()]
        settings = {name: state.get(f"setting:{name}") for name in change.settings}
        count = len(new) + len(change.states) if change.count is None else change.count
        pending = {
            "entry": entry,
            "part": part,
            "log": continued,
            "undoes": change.undoes,
            "rows": [first, first + len(new)],
            "generation": generation,
            "settings": settings,
            "bulk": self.collections.takes_bulk(len(new)),
        }
        write = self.collections.put
        if pending["bulk"]:
            self.collections.settle(_bulk_names(generation), self._renew)
            write = partial(self.collections.load, meanwhile=self._renew)
        removed = {n: RowState(row.identity, row.group, True) for n, row in new.items()}
        self.set_state(pending=json.dumps(pending))
        try:
            write("touched", _touched_lines(entry, part, {**before, **removed}))
            write(f"rows_{generation}", lines)
            self.write_states(generation, change.states)
            self.set_state(**{f"setting:{name}": value for name, value in change.settings.items()})
            if GENERATION in change.settings:
                self._follow(generation, int(str(change.settings[GENERATION])))
        except BaseException:
            self._take_back(pending)
            raise
        self._write_log(change, entry, count, settings)
        seen = sorted({*json.loads(state["modalities"]), *("+".join(r.modalities) for r in new.values())})
        self.set_state(
            revision=str(part),
            next_row=str(first + len(new)),
            next_entry=str(max(entry + 1, int(state["next_entry"]))),
            modalities=json.dumps(seen),
        )
        self.set_state(pending=None)
        return entry

    def _take_back(self, pending: Mapping[str, Any]) -> None:
        """Undo what is there of a change that was not finished."""
        entry, part, generation = pending["entry"], pending["part"], pending["generation"]
        first, end = pending["rows"]
        if pending.get("bulk"):
            self.collections.settle(_bulk_names(generation), self._renew)
        before = self.touched(f"entry == {entry} and part == {part}")
        if end > first:
            self.collections.remove(f"rows_{generation}", f"id >= {first} and id < {end}")
        self.write_states(generation, {row: s for row, s in before.items() if row < first})
        self.set_state(**{f"setting:{name}": value for name, value in pending["settings"].items()})
        if pending["log"] is None:
            self.collections.remove("log", f"id == {entry}")
        else:
            self.put_log(pending["log"])
        if pending["undoes"] is not None:
            self._mark_undone(pending["undoes"], 0)
        self.collections.remove("touched", f"entry == {entry} and part == {part}")
        self.set_state(pending=None)

    def touched(self, condition: str) -> dict[int, RowState]:
        """What rows were before; the first state of each."""
        lines = self.collections.ask("touched", condition, ("row", "part", *_STATE))
        return {int(line["row"]): to_state(line) for line in sorted(lines, key=lambda line: -line["part"])}

    def _states(self, generation: int, ids: Iterable[int]) -> dict[int, RowState]:
        lines = self.collections.ask_rows(f"rows_{generation}", ids, ("id", *_STATE))
        return {int(line["id"]): to_state(line) for line in lines}

    def write_states(self, generation: int, states: Mapping[int, RowState]) -> None:
        """Give rows other states; the other fields are read and written back, as Milvus wants whole lines."""
        name = f"rows_{generation}"
        for part in in_parts(sorted(states), AT_ONCE):
            lines = self.collections.ask_rows(name, part, ["*"])
            self.collections.put(name, [{**line, **state_fields(states[int(line["id"])])} for line in lines])

    def _follow(self, old: int, new: int) -> None:
        """Bring the rows of a generation that is switched to up to date; every live row must be there."""
        live = {int(n["id"]) for n in self.collections.ask(f"rows_{old}", "removed == false", ["id"])}
        states, there = self._states(old, live), self._states(new, live)
        if without := live - set(there):
            raise GalleryError(f"{self.collections.place}: row {min(without)} has no feature of that model")
        self.write_states(new, {row: state for row, state in states.items() if there[row] != state})

    def _write_log(self, change: Change, entry: int, count: int, settings: Mapping[str, str | None]) -> None:
        if change.continues is not None:
            line = self._entry(entry)
            kept = {**settings, **json.loads(line["settings_before"] or "{}")}
            self.put_log({**line, "count": line["count"] + count, "settings_before": json.dumps(kept)})
            return
        self.put_log(
            {
                "id": entry,
                "time": time.time(),
                "by": change.by,
                "operation": change.operation,
                "count": count,
                "details": _short_json(change.details),
                "undoable": change.undoes is None,
                "undone_by": 0,
                "settings_before": json.dumps(dict(settings)),
            }
        )
        if change.undoes is not None:
            self._mark_undone(change.undoes, entry)

    def _entry(self, entry: int) -> dict[str, Any]:
        (line,) = self.collections.ask("log", f"id == {entry}", _LOG)
        return line

    def put_log(self, line: dict[str, Any]) -> None:
        """Write one line of the log."""
        self.collections.put("log", [line])

    def _mark_undone(self, entry: int, by: int) -> None:
        self.put_log({**self._entry(entry), "undone_by": by})

    def note(self, change: Change, count: int) -> int:
        """Put something that changes nothing into the log; its entry."""
        with self.turn() as state:
            entry = int(state["next_entry"])
            self.set_state(next_entry=str(entry + 1))
            self._write_log(change, entry, count, {})
            self.put_log({**self._entry(entry), "undoable": False})
        return entry

    def open_entry(self, entry: int) -> dict[str, Any]:
        """A change that can be undone; raises `GalleryError` where it cannot be, or has been."""
        lines = self.collections.ask("log", f"id == {entry}", _LOG)
        place = self.collections.place
        if not lines or not lines[0]["undoable"]:
            raise GalleryError(f"{place}: entry {entry} of the log is no change that can be undone")
        if lines[0]["undone_by"]:
            raise GalleryError(
                f"{place}: entry {entry} of the log was undone by entry {lines[0]['undone_by']} already"
            )
        return lines[0]


def _bulk_names(generation: int) -> tuple[str, ...]:
    """Collections that a bulk import writes to."""
    return "touched", f"rows_{generation}"


def _touched_lines(entry: int, part: int, before: Mapping[int, RowState]) -> list[dict[str, Any]]:
    """What rows were before; of a row that one entry changes twice, what it was at first counts."""
    common = {"entry": entry, "part": part}
    return [
        {"key": f"{entry}:{part}:{row}", **common, "row": row, **plain_state(state)}
        for row, state in before.items()
    ]


def _short_json(details: Mapping[str, Any]) -> str:
    """Details as JSON that Milvus takes: lists that are too long are cut, and say so."""
    text = json.dumps(dict(details), ensure_ascii=False)
    if len(text.encode()) <= LONGEST:
        return text
    cut = {
        name: [*value[:KEPT], f"and {len(value) - KEPT:,} more"]
        if isinstance(value, list) and len(value) > KEPT
        else value
        for name, value in details.items()
    }
    return json.dumps(cut, ensure_ascii=False)
