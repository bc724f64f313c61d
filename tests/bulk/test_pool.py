"""Pools of actors: how many fit, and which cannot be placed, at the start or later."""

import signal
import threading
import time
from itertools import count, repeat

import pytest

from slimreid.bulk import pool as pools
from slimreid.bulk.pool import Pool, place, room_kept, wait_for_room
from slimreid.errors import ConfigError

SMALL, LARGE, GPUS = {"CPU": 2.0}, {"CPU": 16.0}, {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("pool", "machines", "actors"),
    [
        (Pool(), [LARGE], 14),
        (Pool(actors=3, cpus=0.5), [LARGE], 3),
        (Pool(cpus=4), [LARGE, LARGE], 7),  # four on each, but two CPUs must stay free
        (Pool(cpus=1, gpus=1), [GPUS, LARGE], 2),
        (Pool(cpus=0, gpus=0.5), [GPUS, GPUS], 8),
    ],
)
def test_as_many_as_fit(pool, machines, actors):
    assert place(pool, machines) == actors


@pytest.mark.parametrize(
    ("pool", "machines"),
    [
        (Pool(actors=2), [SMALL]),  # none left to read and write: Ray would wait for ever
        (Pool(), [SMALL]),
        (Pool(actors=1, cpus=12), [GPUS, GPUS]),  # enough in all, but on no machine
        (Pool(gpus=1), [LARGE]),
        (Pool(actors=5, cpus=0, gpus=1), [GPUS, GPUS]),
    ],
)
def test_pools_that_cannot_be_placed_are_refused(pool, machines):
    with pytest.raises(ConfigError, match=r"cannot be placed.*take fewer or smaller ones with --actors"):
        place(pool, machines)


def test_pools_without_actors_or_size_are_refused():
    with pytest.raises(ConfigError, match="--actors must be at least 1"):
        Pool(actors=0)
    with pytest.raises(ConfigError, match="needs CPUs or GPUs"):
        Pool(cpus=0)


@pytest.mark.parametrize(
    ("pool", "free", "message"),
    [
        (Pool(), {"CPU": 4.5}, "need 5 CPUs, and other work on the cluster leaves 4.5"),
        (Pool(gpus=1), {"CPU": 9.0, "GPU": 2.0}, "need 3 GPUs, and other work on the cluster leaves 2"),
        (Pool(), {}, "leaves 0"),
    ],
)
def test_other_work_that_leaves_no_room_is_named(pool, free, message, monkeypatch):
    monkeypatch.setattr(pools, "PATIENCE", 0.0)
    with pytest.raises(ConfigError, match=f"3 actors cannot be placed now.*{message}; wait for its end"):
        wait_for_room(pool, 3, lambda: free)


def test_other_work_may_end_in_time(monkeypatch):
    free, waited = iter([{"CPU": 1.0}, {"CPU": 5.0}]), []
    monkeypatch.setattr(time, "sleep", waited.append)
    wait_for_room(Pool(), 3, lambda: next(free))
    assert next(free, None) is None, "it looked twice"
    assert len(waited) == 1, "it waited between"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_pool_that_lost_its_machine_is_stopped_by_name_once_nothing_appears(monkeypatch, handler):
    monkeypatch.setattr(pools, "STANDSTILL", 0.2)
    before = signal.signal(signal.SIGINT, handler)  # shells have it ignored in the background
    try:
        with (
            pytest.raises(ConfigError, match="a machine was lost: 4 actors of 1 CPU each cannot be placed"),
            room_kept(Pool(), 4, lambda: [{"CPU": 4.0}], lambda: 7),
        ):
            time.sleep(60)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("machines", [[SMALL], [LARGE]])
def test_a_pool_that_goes_on_or_has_its_machines_is_left_alone(monkeypatch, machines):
    monkeypatch.setattr(pools, "STANDSTILL", 0.1)
    files = count() if machines == [SMALL] else repeat(7)
    looked, enough = count(1), threading.Event()

    def look():
        if next(looked) > 4 * pools._LOOKS:  # in four times the patience
            enough.set()
        return machines

    with room_kept(Pool(), 4, look, lambda: next(files)):
        assert enough.wait(60)


def test_an_interrupt_stays_one():
    with pytest.raises(KeyboardInterrupt), room_kept(Pool(), 4, lambda: [SMALL], lambda: 7):
        raise KeyboardInterrupt
