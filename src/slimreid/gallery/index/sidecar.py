"""Features of a gallery as plain arrays in a folder beside it, mapped into memory.

The folder holds copies only: it is checked against the gallery, extended when rows came, made anew whenever
it does not fit, and may be removed at any time. Arrays only grow at their end, and `state.json` says how far
they are valid, so that readers and one writer do not disturb each other. What is made anew gets new names.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Bools, Floats, Ints
from slimreid.files import write_text
from slimreid.gallery.index.quantised import Quantised, quantise
from slimreid.inference.similarity import Prepared, Similarity

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

_STATE = "state.json"


@dataclass(frozen=True)
class Key:
    """What features a sidecar was made of."""

    epoch: int
    generation: int
    revision: int
    token: int
    """Of the revision."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Features of n rows, ready to be compared, by ascending id."""

    ids: Ints
    prepared: Prepared
    quantised: Quantised

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, some: slice) -> Arrays:
        small = Quantised(self.quantised.codes[some], self.quantised.scales[some])
        return Arrays(self.ids[some], self.prepared[some], small)


Chunks = Iterable[tuple[Ints, Floats, Bools]]
"""Ids (n,), features (n, D) and modalities (n, M) of rows, by ascending id."""


class Sidecar:
    """The arrays of one gallery, in a folder; without a folder that can be written, in memory."""

    def __init__(self, folder: Path, similarity: Similarity, dimension: int) -> None:
        self.folder, self.similarity, self.dimension = folder, similarity, dimension
        S = len(similarity.subsets)
        self._types: dict[str, tuple[str, int]] = {
            "ids": ("<i8", 1),
            "values": ("<f4", dimension),
            "subset": ("<i8", 1),
            "norms": ("<f4", S),
            "codes": ("i1", dimension),
            "scales": ("<f4", 1),
        }

    def load(self, key: Key, is_known: Callable[[int, int], bool], read: Callable[[int], Chunks]) -> Arrays:
        """The arrays for the gallery as it is now.

        `is_known(revision, token)`: whether the gallery has that revision. `read(after)`: rows after an id.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            with _locked(self.folder):
                state = self._valid_state(key, is_known)
                if state is None or state["revision"] < key.revision:
                    state = self._extend(state, key, read)
                return self._map(state)
        except OSError:  # no room, or no right to write: it is only a copy
            return self._in_memory(read)

    def _valid_state(self, key: Key, is_known: Callable[[int, int], bool]) -> dict[str, Any] | None:
        """What the folder holds, None where that is not of this gallery and generation."""
        try:
            state: dict[str, Any] = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
            own = (key.epoch, key.generation, self.dimension)
            if (state["epoch"], state["generation"], state["dimension"]) != own:
                return None
            if not is_known(state["revision"], state["token"]):
                return None
            for name in self._types:
                if self._path(name, state).stat().st_size < self._bytes(name, state["rows"]):
                    return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return state

    def _extend(
        self, state: dict[str, Any] | None, key: Key, read: Callable[[int], Chunks]
    ) -> dict[str, Any]:
        """Add the rows that are missing, or begin anew."""
        if state is None:
            for old in self.folder.glob("*.bin"):
                old.unlink(missing_ok=True)
            state = {"name": uuid.uuid4().hex[:12], "rows": 0, "last": 0, "dimension": self.dimension}
        rows, last = state["rows"], state["last"]
        with ExitStack() as stack:
            files = {name: stack.enter_context(self._path(name, state).open("ab")) for name in self._types}
            for name, file in files.items():  # what a killed process wrote beyond what is valid
                file.truncate(self._bytes(name, rows))
                file.seek(0, os.SEEK_END)
            for ids, features, present in read(last):
                for name, array in self._arrays(ids, features, present).items():
                    files[name].write(np.ascontiguousarray(array, dtype=self._types[name][0]).data)
                rows, last = rows + len(ids), int(ids[-1])
            for file in files.values():
                file.flush()
                os.fsync(file.fileno())
        state |= {"rows": rows, "last": last, **vars(key)}
        write_text(self.folder / _STATE, json.dumps(state))
        return state

    def _path(self, name: str, state: dict[str, Any]) -> Path:
        return self.folder / f"{name}-{state['name']}.bin"

    def _bytes(self, name: str, rows: int) -> int:
        kind, width = self._types[name]
        return rows * np.dtype(kind).itemsize * width

    def _arrays(self, ids: Ints, features: Floats, present: Bools) -> dict[str, NDArray[Any]]:
        found = self.similarity.prepare(features, present)
        small = quantise(found.values)
        return {
            "ids": ids,
            "values": found.values,
            "subset": found.subset,
            "norms": found.inverse_norms,
            **vars(small),
        }

    def _map(self, state: dict[str, Any]) -> Arrays:
        n, found = state["rows"], {}
        for name, (kind, width) in self._types.items():
            shape = (n, width) if name in ("values", "norms", "codes") else (n,)
            path = self._path(name, state)
            found[name] = np.memmap(path, kind, "r", shape=shape) if n else np.zeros(shape, kind)
        return _joined(found)

    def _in_memory(self, read: Callable[[int], Chunks]) -> Arrays:
        nothing = np.zeros((0, self.dimension), np.float32)
        unseen = np.zeros((0, len(self.similarity.modalities)), np.bool_)
        parts = [self._arrays(np.zeros(0, np.int64), nothing, unseen)]
        parts += [self._arrays(*chunk) for chunk in read(0)]
        return _joined({name: np.concatenate([part[name] for part in parts]) for name in self._types})


def _joined(found: dict[str, Any]) -> Arrays:
    plain = {name: np.asarray(array) for name, array in found.items()}
    return Arrays(
        plain["ids"],
        Prepared(plain["values"], plain["subset"], plain["norms"]),
        Quantised(plain["codes"], plain["scales"]),
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
