"""Worker processes, and what is left when their parent is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.generate import is_world, make_world
from slimreid.data.workers import worker_pool
from slimreid.errors import DataError

PATIENCE = 60  # seconds, on a busy machine


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def running(parent=None):
    """Numbers of the processes that run, or of the children of one."""
    lines = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
    found = [line.split() for line in lines.stdout.splitlines()]
    return {int(p) for p, of, state in found if state[0] != "Z" and parent in (None, int(of))}


def test_a_killed_generator_leaves_neither_processes_nor_folders(tmp_path):
    out = tmp_path / "w"
    words = ["data", "synth", out, "--identities", "400", "--workers", "2"]
    parent = subprocess.Popen([sys.executable, "-m", "slimreid", *map(str, words)], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(tmp_path.glob(".w.partial-*/train_171/RGB/*.jpg")))
        children = running(parent.pid)
        assert len(children) == 2
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_for(lambda: not children & running())
    assert not out.exists(), "nothing half-filled has the name"
    small = SynthOptions(identities=4, cameras=2, images_per_camera=1, size=(16, 16))
    make_world(out, small, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    assert is_world(out, small)


def _work(number):
    if number == 1:
        raise DataError("one is broken")
    return os.getpid()


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_named():
    with pytest.raises(DataError, match=r"2 worker processes was killed.*--workers"), worker_pool(2) as pool:
        pool.submit(_die, 0).result()


def test_a_pool_works_and_hands_errors_on():
    with worker_pool(1) as pool:
        assert pool.submit(_work, 0).result() != os.getpid()
    with pytest.raises(DataError, match="one is broken"), worker_pool(1) as pool:
        pool.submit(_work, 1).result()
