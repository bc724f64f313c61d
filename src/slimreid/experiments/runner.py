"""Running jobs one after the other: finished ones are skipped, interrupted ones gone on with."""

from __future__ import annotations

import logging
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slimreid.config import Config
from slimreid.config_io import CONFIG_NAME, load_config
from slimreid.console import progress
from slimreid.errors import ConfigError, SlimReIDError, TrainingError
from slimreid.experiments.plan import WITHOUT_EFFECT, Job, Key, deciding_options
from slimreid.experiments.record import RunRecord, read_record, write_record
from slimreid.experiments.runs import epoch_seconds, run_record
from slimreid.training.checkpoint import CheckpointStore
from slimreid.training.display import duration

logger = logging.getLogger(__name__)

LOG_NAME = "log.txt"
_GRACE, _PATIENCE = 3.0, 60.0
"""Seconds for a run to end by itself after Ctrl-C, and after it was told to."""

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


def job_state(job: Job) -> State:
    """Where a job stands; raises `ConfigError` when what is there was made with other options or data."""
    if job.result.is_file():
        record = read_record(job.result)
        _check_same(job, job.result, record.options, record.dataset)
        return "finished"
    if CheckpointStore(job.run).exists:
        before = load_config([job.run / CONFIG_NAME]) if (job.run / CONFIG_NAME).is_file() else job.config
        _check_same(job, job.run, deciding_options(before), job.dataset)
        return "started"
    return "new"


def _check_same(job: Job, where: Path, options: dict[str, Any], dataset: str) -> None:
    # An option that did not exist then had the effect of its default.
    old = deciding_options(Config()) | {k: v for k, v in options.items() if k not in WITHOUT_EFFECT}
    new = deciding_options(job.config)
    changed = [
        f"{key}: {old.get(key)!r} before, {new.get(key)!r} now"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if dataset != job.dataset:
        changed.append("the rows of the manifest")
    if changed:
        raise ConfigError(
            f"{where} was made with other options:\n  "
            + "\n  ".join(changed)
            + "\nput them back, choose another --output, or add --rerun to throw it away and run it again"
        )


def forget(job: Job) -> None:
    """Remove the result and the run of a job."""
    job.result.unlink(missing_ok=True)
    if job.run.is_dir():
        shutil.rmtree(job.run)


def states(jobs: Sequence[Job], rerun: bool = False) -> list[State]:
    """Where all jobs stand; with `rerun`, those made with other options are thrown away first."""
    found: list[State] = []
    for job in jobs:
        try:
            found.append(job_state(job))
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
    start: Start | None = None,
    say: Callable[[str], None] = logger.info,
) -> Outcome:
    """Run all jobs that have no result yet, each result written as soon as its run ends.

    A job that fails is reported and the rest goes on. `start` does the work, by default in a process of
    its own. `say` is told in one line what happened, with the time that is left. Raises `ConfigError`
    before anything is started when something there was made with other options, and passes on
    `KeyboardInterrupt` when the running job has stopped.
    """
    start = start or run_in_own_process
    outcome = Outcome()
    times: dict[Key, list[float]] = {}
    for number, (job, state) in enumerate(zip(jobs, states(jobs, rerun), strict=True), start=1):
        if state == "finished":
            record = read_record(job.result)
            outcome.records.append(record)
            times.setdefault(job.key, []).append(sum(record.seconds.values()))
            continue
        name = f"[{number}/{len(jobs)}] {job.experiment.title}, seed {job.config.seed}"
        begun = f", going on after epoch {len(epoch_seconds(job.run))}" if state == "started" else ""
        left = seconds_left(_unfinished(jobs[number - 1 :]), times)
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


def _unfinished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not job.result.is_file()]


def finish(job: Job) -> RunRecord:
    """Write the result of a job whose run has ended and was evaluated."""
    record = run_record(
        job.run,
        name=job.name,
        label=job.experiment.title,
        missing=job.experiment.missing,
        source={"command": job.shown_command()},
    )
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
        share = 1 - len(epoch_seconds(job.run)) / job.config.train.epochs
        total += statistics.fmean(times.get(job.key, [every])) * max(0.0, share)
    return total


def run_in_own_process(job: Job) -> None:
    """Train and evaluate by the commands a person would type, their output in the run's log.txt.

    A process of its own frees all memory at the end, and what kills it does not kill the rest. Raises
    `TrainingError` with the end of the log when one of them fails.
    """
    job.run.mkdir(parents=True, exist_ok=True)
    evaluate = ["evaluate", str(job.run), *(["--missing", "all"] if job.experiment.missing else [])]
    for words in (job.command(), evaluate):
        code = _run(words, job)
        if code:
            log = job.run / LOG_NAME
            raise TrainingError(f"{_complaint(log, code)} (all of it is in {log})")


def _run(words: Sequence[str], job: Job) -> int:
    """Run a command of ours to its end, showing the epochs done; returns its exit code."""
    with (job.run / LOG_NAME).open("ab") as log:
        log.write(f"$ slimreid {shlex.join(words)}\n".encode())
        log.flush()
        child = subprocess.Popen(
            [sys.executable, "-m", "slimreid", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            for _ in progress(_epochs(child, job), f"{words[0]} {job.name}", job.config.train.epochs):
                pass
            return child.wait()
        finally:
            _stop(child)


def _epochs(child: subprocess.Popen[bytes], job: Job) -> Iterator[int]:
    """Yields once per finished epoch, until the process ends."""
    seen = 0
    while True:
        ended = child.poll() is not None
        for _ in epoch_seconds(job.run)[seen:]:
            seen += 1
            yield seen
        if ended:
            return
        time.sleep(0.2)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Wait for a process that Ctrl-C has reached too, then ask it to end, then end it."""
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _complaint(log: Path, code: int) -> str:
    """The last error of a log, or its last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if starts:
        return "\n  ".join(lines[starts[-1] :]).removeprefix("error: ")
    how = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
    return "\n  ".join([how, *lines[-5:]])
