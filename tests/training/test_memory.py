"""Freed memory stays with the process: counted in page faults, not in seconds."""

import subprocess
import sys

import pytest

from slimreid.training import memory

COUNT = """
import resource, sys
import torch
from slimreid.training.memory import keep_freed_memory

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def work():
    for _ in range(20):
        torch.ones(10 * 2**20)  # 40 MiB: more than what glibc ever keeps by itself, however the heap lies

work()  # the first pages must come from the system in any case
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word):
    command = [sys.executable, "-c", COUNT, word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(memory.platform.libc_ver()[0] != "glibc", reason="a matter of glibc")
def test_kept_memory_is_not_faulted_in_again():
    assert faults("keep") * 20 < faults("plain")


@pytest.mark.parametrize(("system", "libc"), [("darwin", "glibc"), ("linux", "")])
def test_elsewhere_nothing_is_done(monkeypatch, system, libc):
    monkeypatch.setattr(memory.sys, "platform", system)
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: (libc, ""))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda *_: pytest.fail("must not be called"))
    assert memory.keep_freed_memory() is False
