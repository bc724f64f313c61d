"""What the benchmarks of the gallery are tried on."""

from __future__ import annotations

import numpy as np
import pytest

from support.gallery import PLAIN, crowd


@pytest.fixture
def people(load_benchmark):
    """320 random people by two cameras, two images each: half enrolled, a quarter each strangers."""
    samples = crowd(320, 4, noise=0.8)
    names = np.array([f"{n:03}" for n in samples.identity])
    camera = np.tile(["a", "a", "b", "b"], 320)
    person, number = samples.identity, np.arange(1280)
    return load_benchmark("identify_people").People(
        PLAIN,
        np.stack([samples.features] * 7),
        names,
        camera,
        np.ones((1280, 3)),
        rows=number[(person < 160) & (camera == "a")],
        mated=number[(person < 160) & (camera == "b")],
        strangers=number[(person >= 160) & (person < 240)],
        held_out=number[person >= 240],
    )
