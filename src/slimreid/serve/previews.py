"""What a change would do: the same code as the change itself, on a store that only writes down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slimreid.gallery.store import rows as stored
from slimreid.gallery.store.contract import Store
from slimreid.serve.schemas.changes import Change, Effect, Move


class _Recorder:
    """A store that shows everything and changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.states: dict[int, stored.RowState] = {}
        self.settings: set[str] = set()
        self.forgotten: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, change: stored.Change) -> int:
        self.states |= change.states
        self.settings |= set(change.settings)
        return 0

    def forget(self, ids: Sequence[int], by: str) -> int:
        self.forgotten += ids
        return 0


def make_change(store: Store, operation: str, edit: Callable[[Store], Any], dry_run: bool) -> Change:
    """Do an edit unless `dry_run`, and say what it changes; raises what the edit raises.

    The caller sees to it that nobody else changes the store meanwhile.
    """
    recorder = _Recorder(store)
    edit(recorder)  # type: ignore[arg-type]  # it passes everything else on
    change = _describe(store, operation, recorder)
    if dry_run:
        return change
    entry = edit(store)
    return change.model_copy(update={"dry_run": False, "entry": entry if isinstance(entry, int) else None})


def _describe(store: Store, operation: str, recorder: _Recorder) -> Change:
    ids = sorted({*recorder.states, *recorder.forgotten})
    rows = {row.id: row for row in store.rows(stored.Filter(ids=ids, removed=None))} if ids else {}
    now = {number: None if row.removed else row.identity for number, row in rows.items()}
    then: dict[int, str | None] = {}
    for number in rows:
        state = recorder.states.get(number)
        then[number] = None if state is None or state.removed else state.identity
    moves: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for number in rows:
        if now[number] != then[number]:
            moves[now[number], then[number]].append(number)
    notes = []
    if "calibration" in recorder.settings:
        notes.append("the calibration becomes what it was before")
    if "generation" in recorder.settings:
        notes.append("the features become those of the model before")
    if recorder.forgotten:
        notes.append("the rows are erased for good: this cannot be undone")
    changed = [number for number in rows if now[number] != then[number]]
    return Change(
        dry_run=True,
        operation=operation,
        entry=None,
        rows=len(changed),
        moves=[Move(source=a, target=b, rows=numbers) for (a, b), numbers in moves.items()],
        effects=_effects(store, now, then),
        notes=notes,
    )


def _effects(store: Store, now: Mapping[int, str | None], then: Mapping[int, str | None]) -> list[Effect]:
    """Identities whose number of rows changes, by name."""
    change: Counter[str] = Counter()
    for number, name in now.items():
        if name is not None:
            change[name] -= 1
        if (after := then[number]) is not None:
            change[after] += 1
    sizes = store.identities()
    return [
        Effect(identity=name, before=sizes.get(name, 0), after=sizes.get(name, 0) + difference)
        for name, difference in sorted(change.items())
        if difference
    ]
