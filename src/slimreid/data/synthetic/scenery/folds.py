"""Fine irregularity of surfaces: folds of cloth, dirt, leaves."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import ndimage

from slimreid.data.synthetic.scenery.canvas import Array, Region

_TILE = 512


@lru_cache(maxsize=8)
def smooth_noise(smoothness: float, seed: int = 0) -> Array:
    """A tile (512, 512) of noise of unit variance without a seam, smooth over `smoothness` pixels."""
    noise = np.random.default_rng([9, seed]).standard_normal((_TILE, _TILE))
    smooth = ndimage.gaussian_filter(noise, smoothness, mode="wrap")
    tile: Array = (smooth / smooth.std()).astype(np.float32)
    tile.flags.writeable = False
    return tile


class Folds:
    """Brightness variations of a surface, a patch of noise chosen by the sample's random numbers."""

    def __init__(self, rng: np.random.Generator, strength: float = 0.05, smoothness: float = 2.5):
        self.row, self.col = (int(n) for n in rng.integers(_TILE, size=2))
        self.strength, self.tile = np.float32(strength), smooth_noise(smoothness)

    def at(self, region: Region) -> Array:
        """Variation (h, w) around zero over a region."""
        return self.patch(region.rows, region.cols)

    def patch(self, rows: slice, cols: slice) -> Array:
        """Variation (h, w) around zero over a rectangle of the canvas."""
        r = (np.arange(rows.start, rows.stop) + self.row) % _TILE
        c = (np.arange(cols.start, cols.stop) + self.col) % _TILE
        patch: Array = self.tile[r[:, None], c[None, :]] * self.strength
        return patch
