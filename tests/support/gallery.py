"""Random identities whose features can be compared, for tests of the gallery."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slimreid.gallery.decisions.scale import Samples
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
