"""What a process and all its descendants cost: memory and processor time, from `/proc` (Linux)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

BETWEEN = 0.25
"""Seconds between looks at the processor times; memory is looked at every eighth time."""


@dataclass(frozen=True)
class Cost:
    """Of a command, from its start to its end."""

    text: str
    """What it printed."""
    seconds: float
    processor_seconds: float
    peak_mb: float
    """Most memory at once, each shared page counted once."""


def measured(words: list[str], environment: dict[str, str]) -> Cost:
    """Run a command and watch it; raises `CalledProcessError` where it fails."""
    with tempfile.TemporaryFile("w+") as text:
        began = time.monotonic()
        process = subprocess.Popen(words, stdout=text, stderr=subprocess.DEVNULL, env=environment)
        peak, times, looks = 0.0, dict[int, float](), count()
        while process.poll() is None:
            if next(looks) % 8 == 0:  # costs the machine more than the rest
                peak = max(peak, memory(process.pid))
            times |= processor_times(process.pid)
            time.sleep(BETWEEN)
        seconds = time.monotonic() - began
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, words)
        text.seek(0)
        return Cost(text.read(), seconds, sum(times.values()), peak)


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(place.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def memory(pid: int) -> float:
    """Megabytes of a process and its descendants: the sum of their proportional shares (PSS)."""
    total = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def processor_times(pid: int) -> dict[int, float]:
    """Seconds of processor time of a process and each of its descendants."""
    found = {}
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[each] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def titled(pid: int, title: str) -> list[int]:
    """The descendants whose command line has this text."""
    found = []
    for each in tree(pid)[1:]:
        try:
            if title in Path(f"/proc/{each}/cmdline").read_text():
                found.append(each)
        except OSError:
            continue
    return found
