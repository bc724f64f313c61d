"""What a process that trains sets up: seeds, deterministic algorithms, threads, memory.

Every draw of a run follows from its seed, never from what ran before.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from slimreid.config import TrainConfig

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of glibc's malloc.h, without M_
_SETTINGS = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of everything random in the model at one step of one process."""
    state = np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))  # torch takes 63 bits on every device


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make dropout, drop path and the noise of estimators a function of (seed, step, rank)."""
    torch.manual_seed(step_seed(seed, step, rank))


@contextmanager
def numeric_mode(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Within the block: deterministic algorithms and number of threads as configured, own random state.

    Everything is put back afterwards, so a run leaves no trace in the process that started it.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    benchmark = torch.backends.cudnn.benchmark
    threads = torch.get_num_threads()
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    devices = [device] if device.type == "cuda" else []
    try:
        torch.use_deterministic_algorithms(config.deterministic)
        # It would fill every new tensor with NaN first, which costs time and finds only faults of torch.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = not config.deterministic
        if config.threads:
            torch.set_num_threads(config.threads)
        with torch.random.fork_rng(devices):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = benchmark
        torch.set_num_threads(threads)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next tensors of this process; False where it does not apply.

    By default each large tensor is mapped anew and its pages are faulted in again, step after step. Holds
    for the rest of the process, which never shrinks again: for commands that train, not for libraries.
    """
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    accepted = [mallopt(name, value) == 1 for name, value in _SETTINGS.items()]  # try all, whatever comes
    return all(accepted)
