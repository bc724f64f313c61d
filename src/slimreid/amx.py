"""Whether AMX works here: some virtual machines announce it, and die of it."""

from __future__ import annotations

import json
import logging
import platform
import signal
import subprocess
import sys
from pathlib import Path

from slimreid.files import user_cache_folder, write_text

logger = logging.getLogger(__name__)

_TRIAL_SECONDS = 300.0
_CRASHES = frozenset({signal.SIGILL, signal.SIGSEGV, signal.SIGFPE})


def amx_works(library: str, trial: str) -> bool:
    """Whether a child process survives `trial`, a line of Python that computes one product by AMX.

    The verdict is remembered in the user's cache folder, per machine and `library` with its version; False
    is said in one line, each time.
    """
    key = f"{platform.node()}, {_cpu_model()}, {library}"
    verdicts = _read_verdicts()
    works = verdicts.get(key)
    if works is None:
        code = _exit_code_of(trial)
        works = code == 0
        if works or -code in _CRASHES:  # anything else, such as a lack of memory, may not happen again
            _remember(verdicts | {key: works})
    if not works:
        logger.warning(
            "this CPU announces AMX but cannot run it; %s computes bf16 and int8 without it", library
        )
    return works


def _cpu_model() -> str:
    """The CPU by name, from the first of its cores: long lists of cores are slow to read."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _exit_code_of(trial: str) -> int:
    """How a child process ended that ran `trial`; 1 if it did not end in time."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", trial], capture_output=True, check=False, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1
    return done.returncode


def _verdicts_path() -> Path:
    return user_cache_folder() / "amx.json"


def _read_verdicts() -> dict[str, bool]:
    """Whether AMX works, per machine; empty where nothing readable is remembered."""
    try:
        found = json.loads(_verdicts_path().read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a user without a home
        return {}
    return {k: v for k, v in found.items() if isinstance(v, bool)} if isinstance(found, dict) else {}


def _remember(verdicts: dict[str, bool]) -> None:
    try:
        write_text(_verdicts_path(), json.dumps(verdicts, indent=2) + "\n")
    except (OSError, RuntimeError) as error:
        logger.debug("the verdict on AMX is not remembered: %s", error)
