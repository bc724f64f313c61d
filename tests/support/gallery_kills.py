"""Writes to galleries and kills itself at a given moment; what is left must be the state before or after.

A moment is the n-th step of SQLite's machine (some instructions each) or the n-th call by which the sidecar is
written. Used by the tests and, with kills by the clock, by benchmarks/gallery_kills.py.
"""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.gallery import editing
from slimreid.gallery.store.contract import GENERATION
from slimreid.gallery.store.open import create_store, open_store
from slimreid.gallery.store.rows import Change, Filter
from support.galleries import make_info, make_rows, make_similarity, row_fields

INSTRUCTIONS = 8
"""Of SQLite's machine in one step."""


def operations(store: Any) -> Iterator[Callable[[], Any]]:
    """What is done to a gallery, one committed change after the other."""
    rows = make_rows(12, missing=False)
    query = make_similarity().prepare(rows[0].feature[None])
    yield lambda: store.commit(Change("enrol", "me", rows=rows[:4]))
    yield lambda: store.commit(
        Change("enrol", "me", rows=rows[4:9], continues=store.log(1, undoable=True)[0].id)
    )
    yield lambda: store.search(query, 3)
    yield lambda: editing.merge(store, ["person 1"], "person 2", "me")
    yield lambda: editing.remove(store, Filter(ids=[2, 3]), "me")
    yield lambda: store.search(query, 3)
    yield lambda: editing.undo(store, 1, "me")
    info = make_info("two")
    yield lambda: store.stage(2, info, {i: np.roll(rows[i - 1].feature, 1) for i in range(1, 6)})
    yield lambda: store.stage(2, info, {i: np.roll(rows[i - 1].feature, 1) for i in range(6, 10)})
    yield lambda: store.commit(Change("reembed", "me", settings={GENERATION: "2"}, count=9))
    yield lambda: store.search(query, 3)
    yield lambda: store.commit(Change("enrol", "me", rows=rows[9:]))
    yield lambda: editing.forget(store, Filter(ids=[5]), "me")
    yield lambda: editing.undo(store, 1, "me")
    yield lambda: editing.undo(store, 1, "me")


def state(store: Any) -> dict[str, Any]:
    """All that a gallery says of itself."""
    rows = store.rows(Filter(removed=None))
    live = [row.id for row in rows if not row.removed]
    return {
        "rows": [(row.id, row.removed, row_fields(row)) for row in rows],
        "features": store.features(live).tobytes(),
        "model": store.model.fingerprint,
        "log": [(line.operation, line.count, line.undone_by) for line in store.log()],
        "staged": store.staged(2)[1].tolist(),
    }


def expected_states(folder: Path) -> list[dict[str, Any]]:
    """The states before the first operation and after each of them."""
    store = create_store(folder / "expected.gallery", make_info())
    states = [state(store)]
    for operation in operations(store):
        operation()
        states.append(state(store))
    store.close()
    return states


class Steps:
    """Counts the moments at which a process could die, and lets it die at one of them."""

    def __init__(self, fatal: int | None) -> None:
        self.fatal, self.count = fatal, 0

    def __call__(self, *_: Any) -> int:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def watch(self, store: Any) -> None:
        """Count SQLite's steps and the calls that write the sidecar."""
        store._connection.set_progress_handler(self, INSTRUCTIONS)
        os.fsync = self._counted(os.fsync)  # type: ignore[assignment]
        pathlib.Path.replace = self._counted(pathlib.Path.replace)  # type: ignore[assignment, method-assign]

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self()
            return real(*arguments, **options)

        return call


def run_child(place: Path, fatal: int | None, after: float | None = None) -> tuple[int, int, int]:
    """Fork a process that does all operations on a new gallery: exit code, operations done, steps counted.

    `fatal`: step at which it dies. `after`: seconds after which it is killed.
    """
    reader, writer = os.pipe()
    store = create_store(place, make_info())
    store.close()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        code = 1
        try:
            _child(place, fatal, writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    if after is not None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().split()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), len(lines), int(lines[-1]) if lines else 0


def _child(place: Path, fatal: int | None, writer: int) -> None:
    store = open_store(place)
    steps = Steps(fatal)
    steps.watch(store)
    for operation in operations(store):
        operation()
        os.write(writer, f"{steps.count} ".encode())  # acknowledged


def check_after_kill(place: Path, done: int, states: list[dict[str, Any]]) -> None:
    """The gallery is whole, in the state before or after the operation that was killed, and can be used."""
    store = open_store(place)
    found = state(store)
    allowed = states[done : done + 2]
    assert found in allowed, f"{place.name}: neither before nor after operation {done}"
    assert store.check() == []
    live = store.rows()
    if live:
        similarity = replace(make_similarity(), impostors=None)
        features = store.features([row.id for row in live])
        hits = store.search(similarity.prepare(features), 1, Filter(), similarity)
        assert [hit.ids.tolist() for hit in hits] == [[row.id] for row in live]
    store.commit(Change("enrol", "me", rows=make_rows(1, seed=77)))
    assert store.count() == len(live) + 1
    store.close()
