"""Two trainings never share a folder; the lock ends with its process, however that ends."""

import signal
import subprocess
import sys

import pytest

from slimreid.errors import TrainingError
from slimreid.runs.folder import LOCK_NAME, locked

HOLD = """
import os, sys, time
from pathlib import Path
from slimreid.runs.folder import locked

with locked(Path(sys.argv[1])):
    child = os.fork()  # as the processes that load images are
    if child == 0:
        time.sleep(30)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock, and the number of its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    child = int(process.stdout.readline())
    yield process
    process.kill()
    process.wait()
    subprocess.run(["kill", "-9", str(child)], check=False, capture_output=True)


def test_a_second_process_is_refused_by_name(tmp_path, holder):
    with (
        pytest.raises(TrainingError, match=rf"run: process {holder.pid} on .* is training in this folder"),
        locked(tmp_path / "run"),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_any_death_releases_it_though_children_live_on(tmp_path, holder, number):
    holder.send_signal(number)
    holder.wait()
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_NAME).is_file()


def test_nothing_is_left_behind(tmp_path):
    with locked(tmp_path / "a" / "run"):
        pass
    assert not (tmp_path / "a" / "run").exists()
    with locked(tmp_path / "b"):
        (tmp_path / "b" / "file").write_text("")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["file"]
