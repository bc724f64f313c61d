"""Running jobs one after the other: finished ones are skipped, interrupted ones are resumed."""

from __future__ import annotations

import logging
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slimreid.ablation.plan import Job, Key
from slimreid.ablation.process import run_in_own_process
from slimreid.errors import ConfigError, SlimReIDError
from slimreid.runs.folder import RunFolder
from slimreid.runs.identity import changed_keys, deciding_options
from slimreid.runs.measure import run_record
from slimreid.runs.record import RunRecord, read_record, write_record
from slimreid.training.callbacks.display import duration
from slimreid.training.checkpoint.store import CheckpointStore

logger = logging.getLogger(__name__)


State = Literal["finished", "started", "new"]
Start = Callable[[Job], None]
"""Trains and evaluates a job in its run's folder."""


@dataclass(frozen=True)
class Failure:
    """A job that did not end well."""

    job: Job
    reason: str


@dataclass
class Outcome:
    """What became of jobs."""

    records: list[RunRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def job_state(job: Job, keep_earlier: bool = False) -> State:
    """Where a job stands; raises `ConfigError` when what is there was made with other options or data.

    With `keep_earlier`, the result of an earlier version, whose options had other names, counts as finished.
    """
    if job.result.is_file():
        record = read_record(job.result)
        if record.unknown_options and keep_earlier:
            return "finished"
        if record.unknown_options:
            first, others = record.unknown_options[0], len(record.unknown_options) - 1
            raise ConfigError(
                f"{job.result} was made by an earlier version with options that no longer exist ({first}"
                f"{f' and {others} others' if others else ''}), so it may be another experiment; choose "
                "another --out, or add --rerun to delete it and run it again"
            )
        _check_same(job, job.result, record.options, record.dataset)
        return "finished"
    run = RunFolder(job.run)
    if CheckpointStore(run).exists:
        before = run.config() or job.config
        _check_same(job, job.run, deciding_options(before), job.dataset)
        return "started"
    return "new"


def _check_same(job: Job, where: Path, options: dict[str, Any], dataset: str) -> None:
    changed = list(changed_keys(options, deciding_options(job.config)).values())
    if dataset != job.dataset:
        changed.append("the rows of the manifest")
    if changed:
        listed = "\n  ".join(changed)
        raise ConfigError(
            f"{where} was made with other options:\n  {listed}\n"
            "put them back, choose another --out, or add --rerun to delete it and run it again"
        )


def forget(job: Job) -> None:
    """Remove the result and the run of a job."""
    job.result.unlink(missing_ok=True)
    if job.run.is_dir():
        shutil.rmtree(job.run)


def states(jobs: Sequence[Job], rerun: bool = False, keep_earlier: bool = False) -> list[State]:
    """Where all jobs stand; with `rerun`, those made with other options are thrown away first."""
    found: list[State] = []
    for job in jobs:
        try:
            found.append(job_state(job, keep_earlier and not rerun))
        except ConfigError:
            if not rerun:
                raise
            forget(job)
            found.append("new")
    return found


def run_jobs(
    jobs: Sequence[Job],
    *,
    rerun: bool = False,
    keep_earlier: bool = False,
    start: Start | None = None,
    say: Callable[[str], None] = logger.info,
) -> Outcome:
    """Run all jobs that have no result yet, each result written as soon as its run ends.

    A job that fails is reported and the rest goes on. `keep_earlier` is as in `job_state`. `start` does the
    work, by default in a process of its own. `say` is told in one line what happened, with the time that is
    left. Raises `ConfigError` before anything is started when something there was made with other options,
    and passes on `KeyboardInterrupt` when the running job has stopped.
    """
    start = start or run_in_own_process
    outcome = Outcome()
    times: dict[Key, list[float]] = {}
    for number, (job, state) in enumerate(zip(jobs, states(jobs, rerun, keep_earlier), strict=True), start=1):
        if state == "finished":
            record = read_record(job.result)
            outcome.records.append(record)
            if record.unknown_options:
                say(f"{job.name}: the result of an earlier version is kept; --rerun measures it again")
            times.setdefault(job.key, []).append(sum(record.seconds.values()))
            continue
        name = f"[{number}/{len(jobs)}] {job.experiment.title}, seed {job.config.seed}"
        begun = f", resuming after epoch {RunFolder(job.run).epochs_done}" if state == "started" else ""
        left = seconds_left([job for job in jobs[number - 1 :] if not job.result.is_file()], times)
        say(f"{name}{begun}" + ("" if left is None else f"; {duration(left)} left"))
        began = time.monotonic()
        try:
            start(job)
            record = finish(job)
        except SlimReIDError as error:
            outcome.failures.append(Failure(job, str(error)))
            say(f"{name} failed: {error}")
            continue
        outcome.records.append(record)
        found, took = record.figures(), time.monotonic() - began
        if state == "new":
            times.setdefault(job.key, []).append(took)
        say(f"{name}: mAP {100 * found.map:.1f}, rank-1 {100 * found.cmc[1]:.1f} in {duration(took)}")
    return outcome


def finish(job: Job) -> RunRecord:
    """Write the result of a job whose run has ended and was evaluated."""
    one, source = job.experiment, {"command": job.shown_command()}
    record = run_record(job.run, name=job.name, label=one.title, missing=one.missing, source=source)
    write_record(job.result, record)
    return record


def seconds_left(jobs: Sequence[Job], times: Mapping[Key, Sequence[float]]) -> float | None:
    """The time that jobs will take, by how long those of the same experiment took, or all on average.

    None while nothing has finished. Epochs that an interrupted run has done count as done.
    """
    if not times:
        return None
    every = statistics.fmean(seconds for found in times.values() for seconds in found)
    total = 0.0
    for job in jobs:
        share = 1 - RunFolder(job.run).epochs_done / job.config.train.epochs
        total += statistics.fmean(times.get(job.key, [every])) * max(0.0, share)
    return total
