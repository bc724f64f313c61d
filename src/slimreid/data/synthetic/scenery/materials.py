"""What surfaces are made of: reflectance, warming by the sun, heat of their own, folds and dirt."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import ndimage

from slimreid.data.synthetic.scenery.canvas import MATERIAL, Array, Coat, Region

_TILE = 512


# visible red, green, blue | near infrared | warmed by the sun | own heat
MATERIALS: dict[str, tuple[float, ...]] = {
    "sky": (0.70, 0.79, 0.92, 0.75, -1.1, -0.9),
    "asphalt": (0.31, 0.31, 0.32, 0.24, 0.95, 0.10),
    "paving": (0.58, 0.56, 0.52, 0.48, 0.75, 0.06),
    "grass": (0.29, 0.40, 0.15, 0.72, 0.30, -0.05),
    "gravel": (0.62, 0.55, 0.44, 0.50, 0.80, 0.02),
    "brick": (0.52, 0.29, 0.22, 0.46, 0.70, 0.10),
    "mortar": (0.66, 0.62, 0.56, 0.58, 0.65, 0.08),
    "concrete": (0.60, 0.60, 0.58, 0.55, 0.65, 0.05),
    "plaster": (0.83, 0.78, 0.66, 0.70, 0.55, 0.08),
    "glass": (0.22, 0.28, 0.33, 0.16, -0.1, -0.20),
    "lit": (0.88, 0.82, 0.62, 0.60, 0.20, 0.35),
    "leaves": (0.15, 0.29, 0.09, 0.82, 0.22, -0.02),
    "bark": (0.27, 0.20, 0.15, 0.42, 0.50, 0.02),
    "steel": (0.44, 0.46, 0.48, 0.40, 0.80, -0.05),
    "dark": (0.10, 0.11, 0.12, 0.12, 0.85, 0.00),
    "paint": (0.88, 0.88, 0.85, 0.85, 0.60, 0.02),
    "wood": (0.48, 0.33, 0.20, 0.62, 0.55, 0.00),
    "wall": (0.46, 0.46, 0.44, 0.44, 0.55, 0.02),
    "red": (0.72, 0.12, 0.10, 0.60, 0.60, 0.00),
    "yellow": (0.90, 0.74, 0.12, 0.80, 0.55, 0.00),
    "blue": (0.14, 0.28, 0.62, 0.35, 0.60, 0.00),
    "green": (0.10, 0.40, 0.22, 0.25, 0.60, 0.00),
}


@lru_cache(maxsize=8)
def smooth_noise(smoothness: float) -> Array:
    """A tile (512, 512) of noise of unit variance without a seam, smooth over `smoothness` pixels."""
    noise = np.random.default_rng([9, 0]).standard_normal((_TILE, _TILE))
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


def material(name: str) -> Array:
    """The six values of a material."""
    return np.asarray(MATERIALS[name], dtype=np.float32)


def coat(name: str) -> Coat:
    """A material as something to paint with."""
    return Coat(material(name), material(name), {})


def fill(
    canvas: Array,
    rows: slice,
    cols: slice,
    name: str,
    rng: np.random.Generator,
    rough: float = 0.08,
    grain: float = 1.5,
) -> None:
    """Cover a rectangle with a material that varies by `rough`, over `grain` pixels and over large areas."""
    area = canvas[rows, cols]
    h, w, _ = area.shape
    if h == 0 or w == 0:
        return
    fine, large = _noise(h, w, grain, rng), _noise(h, w, 16.0, rng)
    value = np.empty((h, w, MATERIAL.stop), np.float32)
    value[:] = material(name)
    value[..., :4] *= (1 + rough * (0.7 * fine + 0.7 * large))[..., None]
    value[..., 4] *= 1 + rough * (_noise(h, w, 16.0, rng) + 0.5 * fine)
    area[..., MATERIAL] = value


def _noise(h: int, w: int, smoothness: float, rng: np.random.Generator) -> Array:
    tile = smooth_noise(smoothness)
    row, col = rng.integers(len(tile), size=2)
    rows, cols = (np.arange(h) + row) % len(tile), (np.arange(w) + col) % len(tile)
    patch: Array = tile[rows[:, None], cols[None, :]]
    return patch
