"""Random identities whose features can be compared, for tests of the gallery."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slimreid.gallery.decisions.calibration import Bound, Calibration, calibrate
from slimreid.gallery.decisions.scale import Samples
from slimreid.gallery.decisions.searches import Searches
from slimreid.inference.similarity import Similarity

NAMES = ("rgb", "nir", "tir")
PLAIN = Similarity(NAMES, tuple((name,) for name in NAMES))
WIDTH = 16
"""Channels of a block."""


def mask_of(*names: str) -> NDArray[np.bool_]:
    return np.array([name in names for name in NAMES])


def crowd(
    identities: int,
    each: int,
    *,
    present: NDArray[np.bool_] | None = None,
    noise: float = 0.5,
    alike: float = 0.0,
    seed: int = 0,
) -> Samples:
    """`each` samples of each identity, noisy around a centre; `alike` moves all centres the same way."""
    rng = np.random.default_rng(seed)
    D = len(NAMES) * WIDTH
    centres = rng.normal(size=(identities, D)) + alike
    who = np.repeat(np.arange(identities), each)
    features = (centres[who] + noise * rng.normal(size=(len(who), D))).astype(np.float32)
    mask = (
        np.ones((len(who), len(NAMES)), bool) if present is None else np.broadcast_to(present, (len(who), 3))
    )
    return Samples(features, mask.copy(), who)


def random_searches(identities: int, each: int, seed: int = 0) -> Searches:
    """Searches for enrolled identities, half with rgb and half with thermal images."""
    rng = np.random.default_rng(seed)
    n = identities * each
    subset = np.where(np.arange(n) % 2, "r", "t")
    return Searches(
        np.repeat(np.arange(identities), each), rng.normal(size=n), rng.normal(3, 1, size=n), subset
    )


@lru_cache
def calibrated(each: int = 40) -> Calibration:
    """A calibration for 100 identities and 400 rows; scores of strangers are normal."""
    return calibrate(random_searches(100, each), Bound("abc", 100, 400), PLAIN)
