"""One job in a process of its own, which ends when it is told to and when its parent does."""

from __future__ import annotations

import ctypes
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from slimreid.ablation.plan import Job
from slimreid.errors import TrainingError
from slimreid.progress import progress
from slimreid.runs.folder import RunFolder

_GRACE, _PATIENCE = 3.0, 60.0
"""Seconds for a run to end by itself after Ctrl-C, and after it was told to."""
_PR_SET_PDEATHSIG = 1


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
            log = RunFolder(job.run).log_file
            raise TrainingError(f"{_complaint(log, code)} (all of it is in {log})")


def _run(words: Sequence[str], job: Job) -> int:
    """Run a command of ours to its end, showing the epochs done; returns its exit code."""
    with RunFolder(job.run).log_file.open("ab") as log:
        log.write(f"$ slimreid {shlex.join(words)}\n".encode())
        log.flush()
        child = subprocess.Popen(
            [sys.executable, "-m", "slimreid", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_ending_with_parent(),
        )
        try:
            for _ in progress(_epochs(child, job), f"{words[0]} {job.name}", job.config.train.epochs):
                pass
            return child.wait()
        finally:
            _stop(child)


def _ending_with_parent() -> Callable[[], object] | None:
    """What a child does first so that it is asked to end when this process is killed; Linux only."""
    if sys.platform != "linux":
        return None
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl and partial(prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)


def _epochs(child: subprocess.Popen[bytes], job: Job) -> Iterator[int]:
    """Yields once per finished epoch, until the process ends."""
    seen = 0
    while True:
        ended = child.poll() is not None
        while seen < RunFolder(job.run).epochs_done:
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
