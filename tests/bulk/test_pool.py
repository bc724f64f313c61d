"""Pools of actors: how many fit, and which cannot be placed."""

import pytest

from slimreid.bulk.pool import Pool, place
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
