"""How many threads a process computes with, on a machine that it shares. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

THREADS, WORKERS = "OMP_NUM_THREADS", "WEB_CONCURRENCY"
"""Variables of the environment: threads of a process, and processes of a service on this machine."""
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def usable_threads() -> int:
    """`OMP_NUM_THREADS` where it is set, else this process' share of the cores that it may use.

    `WEB_CONCURRENCY`, as servers of several workers set it, says by how many processes they are shared.
    """
    return _number(THREADS) or max(1, usable_cores() // (_number(WORKERS) or 1))


def usable_cores(groups: Path = _GROUPS, own: Path = _OWN_GROUP) -> int:
    """Cores that this process may use: those of its affinity, or fewer where its container has a quota.

    `groups`, `own`: where Linux tells of control groups, and which of them is that of this process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in (_quota(folder) for folder in _folders(groups, own)) if quota is not None]
    return max(1, min([cores, *(int(quota) for quota in quotas)]))


def _folders(groups: Path, own: Path) -> list[Path]:
    """Folders of the group of this process and of all above it; a container sees its own as the root."""
    found = {groups, groups / "cpu"}
    for line in _text(own).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        base = groups / "cpu" if "cpu" in controllers.split(",") else groups
        inside = PurePosixPath(path.lstrip("/"))
        found |= {base / each for each in (inside, *inside.parents) if ".." not in each.parts}
    return sorted(found)


def _quota(folder: Path) -> float | None:
    """Cores that a control group may use, of version 2 or 1; None for no bound."""
    limits = _text(folder / "cpu.max").split() or [
        _text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    if len(limits) != 2 or not all(limit.isdecimal() and int(limit) for limit in limits):
        return None  # "max", −1 or nothing
    return int(limits[0]) / int(limits[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number(variable: str) -> int:
    """The positive number in a variable of the environment, else 0."""
    given = os.environ.get(variable, "")
    return int(given) if given.isdecimal() else 0
