"""Resampling of identities, for intervals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slimreid.arrays import Doubles

_NUMBERS_AT_ONCE = 2**22


def resample(identities: int, samples: int, seed: int, width: int = 0) -> Iterator[Doubles]:
    """How often each identity is drawn, (some samples, identities), in parts that bound the memory.

    `width`: numbers that the caller makes of one sample, where these are more.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _NUMBERS_AT_ONCE // max(width, identities))
    equal = np.full(identities, 1 / identities)
    for start in range(0, samples, step):
        yield rng.multinomial(identities, equal, size=min(step, samples - start)).astype(np.float64)


def percentile_interval(values: Doubles, level: float) -> tuple[float, float]:
    """Bounds that hold the middle share `level` of values (n,)."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
