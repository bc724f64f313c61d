"""A process that is killed at any moment loses nothing that it has acknowledged, and leaves nothing half done."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from support import skips
from support.gallery_kills import check_after_kill, expected_states, run_child

KILLS = 36


@pytest.fixture
def folder(tmp_path):
    """In memory where that can be: a killed process loses no more there, and the disk is spared."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.mark.skipif(sys.platform != "linux", reason=skips.NOT_LINUX)
def test_every_kill_leaves_the_state_before_or_after(folder):
    states = expected_states(folder)
    code, done, steps = run_child(folder / "whole.gallery", None)
    assert (code, done) == (0, len(states) - 1)
    check_after_kill(folder / "whole.gallery", done, states)
    assert steps > 10 * KILLS
    moments = np.random.default_rng(0).choice(np.arange(1, steps), KILLS, replace=False)
    reached = set()
    for moment in moments.tolist():
        place = folder / f"{moment}.gallery"
        code, done, _ = run_child(place, moment)
        assert code == -signal.SIGKILL
        check_after_kill(place, done, states)
        reached.add(done)
    assert len(reached) > len(states) // 2, "the kills are spread over the operations"
