"""Things that hypothesis draws."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray


def image_arrays(most: int) -> st.SearchStrategy[NDArray[np.uint8]]:
    """Images (H, W, 3) uint8 of up to `most` pixels a side: noise of any spread, so that values also clip."""

    def make(height: int, width: int, seed: int, spread: int) -> NDArray[np.uint8]:
        rng = np.random.default_rng(seed)
        noise = rng.normal(128, spread, (height, width, 3))
        return noise.clip(0, 255).astype(np.uint8)

    sides = st.integers(1, most)
    return st.builds(make, sides, sides, st.integers(0, 2**32 - 1), st.sampled_from([1, 40, 1000]))
