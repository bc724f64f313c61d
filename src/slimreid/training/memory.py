"""Memory that a process frees stays with it, instead of going back to the system after every step."""

from __future__ import annotations

import ctypes
import platform
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of glibc's malloc.h, without M_
_SETTINGS = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}


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
