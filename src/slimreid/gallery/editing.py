"""Changes that people make to a gallery: rename, merge, split, assign, remove, undo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slimreid.errors import ConfigError, did_you_mean
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Change, Filter, LogEntry, Row, RowState


def find_rows(store: Store, which: Filter) -> list[Row]:
    """The rows a filter means; raises `GalleryError` for what is not there, `ConfigError` for no filter."""
    if which.is_all or which == Filter(removed=None):
        raise ConfigError("say which rows: --identity, --id, --camera, ...")
    rows = store.rows(which)
    absent = [name for name in which.identities or () if not any(row.identity == name for row in rows)]
    known = store.identities() if absent else {}
    for name in absent:
        if name not in known:
            raise GalleryError(f"{store.place}: there is no identity '{name}'{did_you_mean(name, known)}")
    if missing := set(map(int, which.ids or ())) - {row.id for row in rows}:
        raise GalleryError(f"{store.place}: there is no row {min(missing)}")
    if not rows:
        raise GalleryError(f"{store.place}: no row matches")
    return rows


def remove(store: Store, which: Filter, by: str) -> int:
    """Take rows out of the gallery; the entry of the log."""
    rows = find_rows(store, which)
    states = {row.id: RowState(row.identity, row.group, removed=True) for row in rows}
    return store.commit(Change("remove", by, _named(rows), states=states))


def forget(store: Store, which: Filter, by: str) -> int:
    """Erase rows for good, also those that were removed before; the entry of the log."""
    rows = find_rows(store, replace(which, removed=None))
    return store.forget([row.id for row in rows], by)


def rename(store: Store, old: str, new: str, by: str) -> int:
    """Give an identity another name; raises `GalleryError` where that is taken."""
    _check_name(new)
    _check_free(store, new, f"merge '{old}' into it instead")
    return _give(store, find_rows(store, Filter(identities=[old])), new, "rename", by)


def merge(store: Store, identities: Sequence[str], into: str, by: str) -> int:
    """Make several identities one, which gets the name `into`."""
    _check_name(into)
    names = [name for name in dict.fromkeys(identities) if name != into]
    if not names or not all(names):
        raise ConfigError("name at least one other identity to merge")
    return _give(store, find_rows(store, Filter(identities=names)), into, "merge", by)


def split(store: Store, ids: Sequence[int], new: str, by: str) -> int:
    """Make rows of one identity an identity of their own; raises `GalleryError` where they are of several."""
    _check_name(new)
    rows = find_rows(store, Filter(ids=list(ids)))
    names = sorted({row.identity for row in rows})
    if len(names) > 1:
        raise GalleryError(f"the rows are of {', '.join(names)}; split one identity at a time")
    _check_free(store, new, "choose another name")
    return _give(store, rows, new, "split", by)


def assign(store: Store, identities: Mapping[int, str], by: str) -> int:
    """Give rows identities; '' = nobody knows. Raises `GalleryError` for a row that is not there."""
    rows = find_rows(store, Filter(ids=list(identities)))
    states = {
        row.id: RowState(identities[row.id], row.group) for row in rows if row.identity != identities[row.id]
    }
    details = {"identities": sorted(set(identities.values()))}
    return store.commit(Change("assign", by, details, states=states))


def _give(store: Store, rows: Sequence[Row], name: str, operation: str, by: str) -> int:
    states = {row.id: RowState(name, row.group) for row in rows}
    return store.commit(Change(operation, by, {**_named(rows), "to": name}, states=states))


def _named(rows: Sequence[Row]) -> dict[str, object]:
    return {"identities": sorted({row.identity for row in rows if row.identity})}


def _check_name(name: str) -> None:
    if not name.strip():
        raise ConfigError("an identity needs a name")


def _check_free(store: Store, name: str, cure: str) -> None:
    if name in store.identities():
        raise GalleryError(f"{store.place}: there is an identity '{name}' already; {cure}")


def undo(store: Store, steps: int, by: str) -> list[LogEntry]:
    """Undo the last changes, newest first; those that were undone.

    Raises `GalleryError` where there are fewer; nothing is undone then.
    """
    if steps < 1:
        raise ConfigError(f"at least 1 step must be undone, not {steps}")
    entries = store.log(steps, undoable=True)
    if len(entries) < steps:
        raise GalleryError(f"{store.place}: {len(entries)} changes can be undone, not {steps}")
    for entry in entries:
        store.commit(replace(store.before(entry.id), by=by))
    return entries
