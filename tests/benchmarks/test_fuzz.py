"""A small piece of benchmarks/fuzz.py on every change, and that it sees what it looks for."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from random import Random

import pytest

from slimreid.errors import DataError

CASES = 200


@pytest.fixture(scope="module")
def fuzz(load_benchmark):
    return load_benchmark("fuzz")


@pytest.fixture(scope="module")
def bench(fuzz, trained_run, tmp_path_factory):
    """Everything that can be damaged, of the small run all tests share."""
    folder = tmp_path_factory.mktemp("fuzz")
    run = shutil.copytree(trained_run, folder / "run")
    fuzz.command("evaluate", run, "--workers", "0")
    return fuzz.targets(folder / "bench", trained_run.parent / "set", run)


def test_no_damaged_file_ends_in_a_traceback_a_hang_or_another_result(fuzz, bench):
    outcomes = list(fuzz.fuzz(bench, CASES, seed=1))
    bad = [o for o in outcomes if o.end in fuzz.BAD]
    assert not bad, "\n".join(f"case {o.number} ({o.target}): {o.end}\n{o.detail}" for o in bad)
    ends = Counter(o.end for o in outcomes)
    assert set(ends) == {"fine", "refused"}
    assert ends["refused"] > CASES / 3
    assert len({o.target.partition(":")[0] for o in outcomes}) == 7, "every kind of file has its turn"


def test_untouched_files_are_fine(fuzz, bench):
    def nothing(_: Random, data: bytes) -> bytes:
        return data

    for target in bench:
        if target.mutate is not None and target.name not in ("config: train", "pth: load"):
            good = fuzz.Target(target.name, target.file, target.folder, nothing, target.read)
            assert fuzz.run_case(good, 0, 0, None) == ("fine", ""), target.name


def test_what_is_bad_is_seen(fuzz, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 1.0)
    monkeypatch.setattr(fuzz, "MEGABYTES", 10**9)

    def reads(what):
        def read(_folder, _file):
            if what == "traceback":
                raise KeyError("x")
            if what == "hang":
                time.sleep(60)
            if what == "died":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "refused":
                raise DataError("no")
            return draws.random() if what == "different" else None

        draws = Random(0)
        return read

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(b"content")
    names = ("fine", "refused", "traceback", "hang", "died", "different")
    chosen = [
        fuzz.Target(
            n, tmp_path / "a" / "f", tmp_path / "a", fuzz.mutate_bytes, reads(n), strict=n == "different"
        )
        for n in names
    ]
    outcomes = list(fuzz.fuzz(chosen, len(names)))
    assert {o.target: o.end for o in outcomes} == {name: name for name in names}
    monkeypatch.setattr(fuzz, "MEGABYTES", 1)
    assert fuzz.run_case(chosen[0], 0, 0, None)[0] == "memory"


@pytest.mark.parametrize("name", ["mutate_bytes", "mutate_text", "mutate_json"])
def test_damage_follows_from_the_draw(fuzz, name):
    mutate = getattr(fuzz, name)
    data = b'{"a": [1, 2.5, null], "b": {"c": "text"}}\n' * (1 if name == "mutate_json" else 5)
    assert [mutate(Random(i), data) for i in range(50)] == [mutate(Random(i), data) for i in range(50)]
    assert len({mutate(Random(i), data) for i in range(50)}) > 25
