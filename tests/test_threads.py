"""Threads of a process on a machine that it shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slimreid import threads
from slimreid.threads import usable_cores, usable_threads


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for variable in ("OMP_NUM_THREADS", "WEB_CONCURRENCY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(
    ("given", "workers", "found"),
    [
        (None, None, 8),
        ("5", None, 5),
        ("0", None, 8),
        ("many", None, 8),
        (None, "1", 8),
        (None, "3", 2),
        (None, "8", 1),
        (None, "99", 1),
        (None, "0", 8),
        ("5", "4", 5),
    ],
)
@pytest.mark.usefixtures("eight_cores")
def test_the_cores_are_shared_by_the_workers(monkeypatch, given, workers, found):
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    for variable, value in (("OMP_NUM_THREADS", given), ("WEB_CONCURRENCY", workers)):
        if value is not None:
            monkeypatch.setenv(variable, value)
    assert usable_threads() == found


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "own", "found"),
    [
        ({}, "", 8),
        ({"cpu.max": "200000 100000"}, "0::/", 2),
        ({"cpu.max": "max 100000"}, "0::/", 8),
        ({"cpu.max": "1600000 100000"}, "0::/", 8),
        ({"cpu.max": "250000 100000"}, "0::/", 2),
        ({"cpu.max": "50000 100000"}, "0::/", 1),
        ({"cpu.max": "nonsense"}, "0::/", 8),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, "0::/a/b", 3),
        ({"other/cpu.max": "100000 100000"}, "0::/a/b", 8),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:memory:/\n", 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/\n", 8),
        ({"cpu/x/cpu.cfs_quota_us": "500000", "cpu/x/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/x", 5),
        ({"../cpu.max": "100000 100000"}, "0::/../..", 8),
    ],
)
@pytest.mark.usefixtures("eight_cores")
def test_a_quota_of_the_container_counts(tmp_path, files, own, found):
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    write(tmp_path / "own", own)
    assert usable_cores(tmp_path / "groups", tmp_path / "own") == found


@pytest.mark.usefixtures("eight_cores")
def test_without_control_groups_the_affinity_counts(tmp_path):
    assert usable_cores(tmp_path / "none", tmp_path / "neither") == 8
