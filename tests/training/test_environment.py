"""What a process that trains sets up. Freed memory is counted in page faults, not in seconds."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.config import TrainConfig
from slimreid.training import environment
from slimreid.training.environment import numeric_mode, seed_step, step_seed
from support.skips import NOT_GLIBC

CPU = torch.device("cpu")
counts = st.integers(0, 2**32)


@given(counts, counts, st.integers(0, 1000))
def test_step_seeds_fit_and_differ_between_neighbours(seed, step, rank):
    found = step_seed(seed, step, rank)
    assert 0 <= found < 2**63
    assert found == step_seed(seed, step, rank)
    others = {
        step_seed(seed + 1, step, rank),
        step_seed(seed, step + 1, rank),
        step_seed(seed, step, rank + 1),
    }
    assert len(others | {found}) == 4


def test_noise_depends_on_the_step_alone_not_on_what_was_drawn_before():
    seed_step(3, 7, 0)
    expected = torch.rand(5)
    torch.rand(1000)
    seed_step(3, 7, 0)
    assert torch.equal(torch.rand(5), expected)
    seed_step(3, 7, 1)
    assert not torch.equal(torch.rand(5), expected)


@pytest.mark.parametrize("deterministic", [True, False])
def test_numeric_mode_is_set_within_and_put_back_after(deterministic):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    before = torch.are_deterministic_algorithms_enabled()

    def work():
        with numeric_mode(TrainConfig(deterministic=deterministic, threads=3), CPU):
            assert torch.are_deterministic_algorithms_enabled() == deterministic
            assert torch.get_num_threads() == 3
            torch.rand(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert torch.get_num_threads() == threads
    assert torch.are_deterministic_algorithms_enabled() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_are_left_alone_unless_set():
    threads = torch.get_num_threads()
    with numeric_mode(TrainConfig(), CPU):
        assert torch.get_num_threads() == threads


COUNT = """
import resource, sys
import torch
from slimreid.training.environment import keep_freed_memory

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


@pytest.mark.skipif(environment.platform.libc_ver()[0] != "glibc", reason=NOT_GLIBC)
def test_kept_memory_is_not_faulted_in_again():
    assert faults("keep") * 20 < faults("plain")


@pytest.mark.parametrize(("system", "libc"), [("darwin", "glibc"), ("linux", "")])
def test_elsewhere_nothing_is_done(monkeypatch, system, libc):
    monkeypatch.setattr(environment.sys, "platform", system)
    monkeypatch.setattr(environment.platform, "libc_ver", lambda: (libc, ""))
    monkeypatch.setattr(environment.ctypes, "CDLL", lambda *_: pytest.fail("must not be called"))
    assert environment.keep_freed_memory() is False
