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
    moves: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for number, row in rows.items():
        now, then = _name(row), _name(recorder.states.get(number))
        if now != then:
            moves[now, then].append(number)
    notes = []
    if "calibration" in recorder.settings:
        notes.append("the calibration becomes what it was before")
    if "generation" in recorder.settings:
        notes.append("the features become those of the model before")
    if recorder.forgotten:
        notes.append("the rows are erased for good: this cannot be undone")
    return Change(
        dry_run=True,
        operation=operation,
        entry=None,
        rows=sum(map(len, moves.values())),
        moves=[Move(source=a, target=b, rows=numbers) for (a, b), numbers in moves.items()],
        effects=_effects(store, moves),
        notes=notes,
    )


def _name(state: stored.Row | stored.RowState | None) -> str | None:
    """Identity of a row; None for one that is not in the gallery."""
    return None if state is None or state.removed else state.identity


def _effects(store: Store, moves: Mapping[tuple[str | None, str | None], Sequence[int]]) -> list[Effect]:
    """Identities whose number of rows changes, by name."""
    change: Counter[str] = Counter()
    for (source, target), rows in moves.items():
        if source is not None:
            change[source] -= len(rows)
        if target is not None:
            change[target] += len(rows)
    sizes = store.identities()
    return [
        Effect(identity=name, before=sizes.get(name, 0), after=sizes.get(name, 0) + difference)
        for name, difference in sorted(change.items())
        if difference
    ]
