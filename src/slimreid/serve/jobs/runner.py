"""Works through jobs, one part after another, beside the requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slimreid.errors import DataError, SlimReIDError
from slimreid.gallery.decisions.calibration import RATES
from slimreid.gallery.identification import calibrate_store, rows_as_probes
from slimreid.serve.enrolment import Labelled, find_known, see_labelled, store_samples
from slimreid.serve.errors import BusyError, NotFoundError
from slimreid.serve.jobs.files import (
    MOST_PROBLEMS,
    JobState,
    job_folders,
    part_files,
    read_part,
    read_state,
    write_part,
    write_state,
)
from slimreid.serve.service import Seen, Service

logger = logging.getLogger("slimreid.serve")

MOST_OPEN = 16
"""Jobs that are not over."""
MOST_KEPT = 100
"""Jobs that are over, of which the newest are shown."""
MOST_BYTES = 4 << 30
"""Of parts that wait."""
_AGAIN = 0.05
"""Seconds until a job that found the queue full tries again."""


@dataclass
class Part:
    """What one request brought to a job, on its way into the gallery."""

    number: int
    path: Path
    count: int
    """Samples, also those that are there twice."""
    there: dict[str, int]
    """Hash -> row of samples that are in the gallery already."""
    seen: list[Seen] = field(default_factory=list)
    whole: list[Labelled] = field(default_factory=list)
    """The samples that were seen."""
    problems: list[str] = field(default_factory=list)
    """Of the others."""


class Jobs:
    """All jobs of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.root = service.settings.jobs
        self._lock = threading.Lock()
        self._states: dict[str, JobState] = {}
        self._bytes = 0
        self._awake: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._read_all()

    def _read_all(self) -> None:
        """Take up the jobs that an earlier service left."""
        for folder in job_folders(self.root):
            try:
                self._states[folder.name] = read_state(folder)
            except DataError as error:
                logger.warning("%s; it is left out", error)
                continue
            for number, path in part_files(folder).items():
                if number <= self._states[folder.name].parts:
                    path.unlink()  # enrolled and counted, only not dropped yet
                else:
                    self._bytes += path.stat().st_size
        self._prune()

    def _prune(self) -> None:
        over = sorted((s for s in self._states.values() if s.is_over), key=lambda s: s.created)
        for state in over[: max(0, len(over) - MOST_KEPT)]:
            shutil.rmtree(self.folder(state.id), ignore_errors=True)
            del self._states[state.id]

    def folder(self, job: str) -> Path:
        """Where a job lies."""
        return self.root / job

    def all(self) -> list[JobState]:
        """All jobs, newest first."""
        return sorted(self._states.values(), key=lambda state: state.created, reverse=True)

    def get(self, job: str) -> JobState:
        """A job; raises `NotFoundError`."""
        if job not in self._states:
            raise NotFoundError("there is no such job")
        return self._states[job]

    def create(self, state: JobState) -> JobState:
        """Begin a job; on disk when this returns. Raises `BusyError` where there are too many."""
        with self._lock:
            if sum(not s.is_over for s in self._states.values()) >= MOST_OPEN:
                raise BusyError(f"{MOST_OPEN} jobs are still open; wait for one of them")
            folder = self.folder(state.id)
            folder.mkdir(parents=True)
            write_state(folder, state)
            self._states[state.id] = state
            self._prune()
        self.wake()
        return state

    def add(self, job: str, samples: Sequence[Labelled]) -> JobState:
        """Give samples to an open job; on disk when this returns."""
        with self._lock:
            state = self.get(job)
            if state.kind != "enrol" or state.state != "open":
                raise DataError(f"the job is {state.state}: it takes no more samples")
            if self._bytes > MOST_BYTES:
                raise BusyError("too many samples wait to be enrolled; try again later")
            number = max([state.parts, *part_files(self.folder(job))]) + 1
            self._bytes += write_part(self.folder(job), number, samples)
            state = self._update(state, received=state.received + len(samples))
        self.wake()
        return state

    def finish(self, job: str) -> JobState:
        """No more samples will come."""
        with self._lock:
            state = self.get(job)
            if state.state == "open":
                state = self._update(state, state="running")
        self.wake()
        return state

    def cancel(self, job: str) -> JobState:
        """Drop what is not enrolled yet."""
        with self._lock:
            state = self.get(job)
            if not state.is_over:
                state = self._update(state, state="cancelled")
                for path in part_files(self.folder(job)).values():
                    self._drop(path)
        return state

    def _update(self, job: JobState, /, **changes: object) -> JobState:
        """Change a job, in memory and on disk; the lock is held."""
        state = replace(job, **changes)  # type: ignore[arg-type]
        write_state(self.folder(state.id), state)
        self._states[state.id] = state
        return state

    def _drop(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._bytes -= path.stat().st_size
            path.unlink()

    def wake(self) -> None:
        """Let the runner look for work; any thread may call it."""
        if self._awake is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._task.get_loop().call_soon_threadsafe(self._awake.set)

    async def start(self) -> None:
        """Begin to work."""
        self._awake = asyncio.Event()
        self._awake.set()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the part that is being enrolled; the rest is done after the next start."""
        if self._task is not None:
            self.service.stopping.set()
            self.wake()
            await self._task

    async def _run(self) -> None:
        assert self._awake is not None
        while not self.service.stopping.is_set():
            if not await self._step():
                await self._awake.wait()
                self._awake.clear()

    async def _step(self) -> bool:
        """Do one part of the oldest job that has any; whether there was one."""
        for state in reversed(self.all()):
            if state.is_over:
                continue
            try:
                if state.kind == "calibrate":
                    await self.service.in_thread(self._calibrate, state)
                    return True
                parts = part_files(self.folder(state.id))
                if parts:
                    await self._enrol(state.id, *next(iter(parts.items())))
                    return True
            except Exception as error:
                if not isinstance(error, SlimReIDError):
                    logger.exception("job %s failed", state.id)
                self._fail(state.id, error)
                return True
            if state.state == "running":
                with self._lock:
                    # A part may have come in just before it was closed.
                    if not part_files(self.folder(state.id)):
                        self._update(self.get(state.id), state="done")
                return True
        return False

    def _fail(self, job: str, error: Exception) -> None:
        text = str(error) if isinstance(error, SlimReIDError) else "an error in the service; see its log"
        for path, name in self.service.hidden.items():
            text = text.replace(path, name)
        with self._lock:
            self._update(self.get(job).with_problem(text), state="failed", pending=())

    def _calibrate(self, state: JobState) -> None:
        self.finish(state.id)
        store = self.service.store
        probes = rows_as_probes(store, getattr(self.service.model, "identities", ()))
        calibrate_store(store, probes, state.by, rates=state.rates or RATES, show_progress=False)
        found = (entry.id for entry in store.log(20, undoable=True) if entry.operation == "calibrate")
        with self._lock:
            self._update(self.get(state.id), state="done", entry=next(found, None))

    async def _enrol(self, job: str, number: int, path: Path) -> None:
        """Enrol one part."""
        samples = await self.service.in_thread(read_part, path)
        hashes = {sample.upload.hash: sample for sample in samples}
        there = await self.service.in_thread(find_known, self.service, list(hashes))
        new = [sample for digest, sample in hashes.items() if digest not in there]
        part = Part(number, path, len(samples), there)
        step = self.service.settings.service.batch
        for start in range(0, len(new), step):
            await self._see(part, new[start : start + step])
        await self.service.in_thread(self._store, job, part)

    async def _see(self, part: Part, samples: Sequence[Labelled]) -> None:
        """Decode and embed samples; those that are broken are left out."""
        while True:
            try:
                part.seen += await see_labelled(self.service, samples)
                part.whole += samples
            except BusyError:
                await asyncio.sleep(_AGAIN)  # people who wait come first
                continue
            except SlimReIDError as error:
                if len(samples) == 1:
                    part.problems.append(f"sample {samples[0].upload.number} of part {part.number}: {error}")
                else:
                    for sample in samples:
                        await self._see(part, [sample])
            return

    def _store(self, job: str, part: Part) -> None:
        """Commit a part and count it; a service that is killed in here counts it after its next start."""
        before = self.get(job)
        if before.state == "cancelled":
            return
        ours = set(before.pending) & set(part.there)  # the commit happened, but not what follows it
        entry = before.entry
        if entry is None:  # or a service that was killed began one
            log = self.service.store.log(200, undoable=True)
            entry = next((line.id for line in log if line.details.get("job") == job), None)
        with self._lock:
            pending = [*ours, *(found.upload.hash for found in part.seen)]
            self._update(self.get(job), pending=pending, entry=entry)
        details = {"from": "service", "job": job}
        done = store_samples(self.service, part.whole, part.seen, before.by, details, entry)
        with self._lock:
            state = self.get(job)
            for problem in part.problems:
                state = state.with_problem(problem)
            enrolled, broken = len(done.rows) + len(ours), len(part.problems)
            concerns = [f"row {done.rows[key]}: {'; '.join(why)}" for key, why in done.concerns.items()]
            self._update(
                state,
                enrolled=state.enrolled + enrolled,
                known=state.known + part.count - enrolled - broken,
                broken=state.broken + broken,
                entry=done.entry if done.entry is not None else entry,
                concerns=[*state.concerns, *concerns][:MOST_PROBLEMS],
                pending=(),
                parts=part.number,
            )
            self._drop(part.path)


def new_state(kind: str, by: str, **values: object) -> JobState:
    """A job that is not on disk yet."""
    return JobState(secrets.token_hex(8), kind, by, time.time(), **values)  # type: ignore[arg-type]
