"""Cameras: where they stand, what they look at and how they see.

A camera's background is a strip several images wide, painted once; every sample looks at another
part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slimreid.config.synthetic import SynthOptions
from slimreid.data.synthetic.objects.looks import pick
from slimreid.data.synthetic.scenery.canvas import CHANNELS, MATERIAL, Array, paint, polygon
from slimreid.data.synthetic.scenery.clutter import LIVELY, STANDING, Rng
from slimreid.data.synthetic.scenery.materials import coat, fill, material

SUPERSAMPLE = 2
MARGIN = 4  # canvas pixels on every side, room for modalities that are not quite aligned
STRIP = 4  # width of a background in images
_STREAM = 2


@dataclass(frozen=True)
class Camera:
    """One camera. Colour, gain and view are its own; a model must not take them for identity."""

    number: int
    background: Array
    """(H', W', 7) canvas, wider and a little higher than an image."""
    ground: float
    """Row of the canvas where the ground begins, as a share of its height."""
    yaw: float
    """Direction in which most objects move, radians; others come back the same way."""
    pitch: float
    """Radians by which it looks down."""
    colour: tuple[float, float, float]
    """Gain of each visible channel."""
    gamma: float
    near_gain: float
    heat_gain: float
    heat_offset: float
    blur: float
    columns: Array
    """(W,) fixed pattern of the thermal sensor."""


def canvas_size(options: SynthOptions) -> tuple[int, int]:
    """Height and width of the canvas a sample is painted on."""
    height, width = options.image_size
    return height * SUPERSAMPLE + 2 * MARGIN, width * SUPERSAMPLE + 2 * MARGIN


def metre(options: SynthOptions) -> float:
    """Canvas pixels per metre where the objects stand."""
    height, width = options.image_size
    return SUPERSAMPLE * (
        height * 0.86 / 1.72 if options.objects == "people" else min(width / 5.4, height / 2.4)
    )


@lru_cache(maxsize=64)
def camera(options: SynthOptions, number: int) -> Camera:
    """Camera `number` (from 1) of a world; the same in every process."""
    rng = np.random.default_rng([options.seed, _STREAM, number])
    people, d = options.objects == "people", options.nuisances.camera
    ground = float(rng.uniform(0.42, 0.64) if people else rng.uniform(0.22, 0.42))
    warm = rng.normal(0, 0.10 * d)
    return Camera(
        number=number,
        background=_background(options, ground, rng),
        ground=ground,
        yaw=float(rng.uniform(-1.2, 1.2)),
        pitch=float(rng.uniform(0.05, 0.18) if people else rng.uniform(0.14, 0.34)),
        colour=(
            float(np.exp(warm + rng.normal(0, 0.05 * d))),
            float(np.exp(rng.normal(0, 0.05 * d))),
            float(np.exp(-warm + rng.normal(0, 0.05 * d))),
        ),
        gamma=float(np.exp(rng.normal(0, 0.22 * d))),
        near_gain=float(np.exp(rng.normal(0, 0.28 * d))),
        heat_gain=float(np.exp(rng.normal(0, 0.22 * d))),
        heat_offset=float(rng.normal(0, 0.09 * d)),
        blur=float(rng.uniform(0.1, 0.2 + 0.6 * options.nuisances.sensor)),
        columns=rng.standard_normal(options.image_size[1]).astype(np.float32),
    )


def _background(options: SynthOptions, ground: float, rng: Rng) -> Array:
    height, width = canvas_size(options)
    height = round(height * 1.12)
    canvas = np.zeros((height, width * STRIP, CHANNELS), np.float32)
    base, m = int(height * ground), metre(options)
    # Seen from the side, walls are further away than the objects and so look smaller.
    far = 0.75 * m
    pick(rng, _BACKDROPS)(canvas, base, far, rng)
    pick(rng, _GROUNDS)(canvas, base, far, rng)
    count = STRIP * (2 if options.objects == "people" else 3)
    spots = (np.arange(count) + rng.uniform(0.1, 0.9, count)) / count * canvas.shape[1]
    things = [(float(x), float(rng.uniform(0, 0.55))) for x in spots]
    for x, near in sorted(things, key=lambda thing: thing[1]):
        kinds = LIVELY if rng.random() < 0.25 else STANDING
        foot = (x, base + near * (height - base))
        pick(rng, kinds)(canvas, foot, far * (0.75 + 0.45 * near), rng)
    # Easy worlds have calm backgrounds: everything moves towards one plain wall.
    calm = 0.85 * (1 - options.nuisances.background)
    canvas[..., MATERIAL] += calm * (material("wall") - canvas[..., MATERIAL])
    canvas.flags.writeable = False
    return canvas


def _bricks(canvas: Array, base: int, m: float, rng: Rng) -> None:
    _, width, _ = canvas.shape
    fill(canvas, slice(0, base), slice(0, width), "brick", rng, 0.10)
    course = max(int(0.16 * m), 3)
    for k, row in enumerate(range(base - course, -course, -course)):
        fill(canvas, slice(max(row, 0), max(row + 1, 0)), slice(0, width), "mortar", rng)
        for col in range((k % 2) * course, width, 2 * course):
            fill(canvas, slice(max(row, 0), row + course), slice(col, col + 1), "mortar", rng, 0.02)
    _openings(canvas, base, m, rng)


def _plaster(canvas: Array, base: int, m: float, rng: Rng) -> None:
    _, width, _ = canvas.shape
    fill(canvas, slice(0, base), slice(0, width), pick(rng, ("plaster", "concrete")), rng, 0.06, 3.0)
    fill(canvas, slice(max(base - int(0.4 * m), 0), base), slice(0, width), "concrete", rng)
    _openings(canvas, base, m, rng)


def _openings(canvas: Array, base: int, m: float, rng: Rng) -> None:
    """Windows and doors; some rooms behind them are lit and warm."""
    x = float(rng.uniform(0.2, 1.0)) * m
    while x < canvas.shape[1]:
        wide, door = float(rng.uniform(0.7, 1.1)) * m, rng.random() < 0.35
        low, high = (base, base - 2.0 * m) if door else (base - 0.9 * m, base - 2.2 * m)
        frame = [
            (x - 0.06 * m, low),
            (x + wide + 0.06 * m, low),
            (x + wide + 0.06 * m, high),
            (x - 0.06 * m, high),
        ]
        paint(canvas, polygon(canvas, frame), coat(pick(rng, ("paint", "dark", "wood"))))
        pane = [(x, low), (x + wide, low), (x + wide, high + 0.08 * m), (x, high + 0.08 * m)]
        paint(
            canvas,
            polygon(canvas, pane),
            coat(pick(rng, ("glass", "glass", "lit", "wood" if door else "glass"))),
        )
        x += wide + float(rng.uniform(0.6, 1.6)) * m


def _shops(canvas: Array, base: int, m: float, rng: Rng) -> None:
    _, width, _ = canvas.shape
    fill(canvas, slice(0, base), slice(0, width), "glass", rng, 0.2, 4.0)
    x = 0.0
    while x < width:
        wide = float(rng.uniform(0.9, 1.8)) * m
        top = slice(max(base - int(2.6 * m), 0), max(base - int(2.2 * m), 0))
        fill(
            canvas,
            top,
            slice(int(x), int(x + wide)),
            pick(rng, ("red", "blue", "green", "yellow", "paint")),
            rng,
        )
        inside = slice(max(base - int(1.5 * m), 0), max(base - int(0.5 * m), 0))
        if rng.random() < 0.6:
            fill(canvas, inside, slice(int(x + 0.2 * m), int(x + wide - 0.2 * m)), "lit", rng, 0.35, 3.0)
        fill(canvas, slice(0, base), slice(int(x), int(x + 0.1 * m)), "steel", rng)
        x += wide
    fill(canvas, slice(max(base - int(0.3 * m), 0), base), slice(0, width), "concrete", rng)


def _park(canvas: Array, base: int, m: float, rng: Rng) -> None:
    _, width, _ = canvas.shape
    fill(canvas, slice(0, base), slice(0, width), "sky", rng, 0.03, 8.0)
    top = max(base - int(float(rng.uniform(1.4, 2.4)) * m), 0)
    fill(canvas, slice(top, base), slice(0, width), "leaves", rng, 0.35, 2.5)
    for x in np.arange(0, width, 0.5 * m):
        y = top + float(rng.uniform(-0.35, 0.35)) * m
        row = slice(max(int(y), 0), max(top, int(y)))
        fill(canvas, row, slice(int(x), int(x + 0.55 * m)), "leaves", rng, 0.35, 2.5)


def _yard(canvas: Array, base: int, m: float, rng: Rng) -> None:
    _, width, _ = canvas.shape
    fill(canvas, slice(0, base), slice(0, width), "sky", rng, 0.03, 8.0)
    x = 0.0
    while x < width:
        wide, high = float(rng.uniform(1.0, 2.5)) * m, float(rng.uniform(1.2, 3.2)) * m
        wall = pick(rng, ("concrete", "plaster", "brick"))
        fill(canvas, slice(max(base - int(high), 0), base), slice(int(x), int(x + wide)), wall, rng)
        x += wide + float(rng.uniform(0.0, 1.0)) * m
    hedge = slice(max(base - int(0.6 * m), 0), base)
    fill(canvas, hedge, slice(0, width), pick(rng, ("leaves", "steel")), rng, 0.25, 1.5)


def _even(name: str, rough: float, grain: float) -> Callable[[Array, int, float, Rng], None]:
    def paint_ground(canvas: Array, base: int, m: float, rng: Rng) -> None:
        height, width, _ = canvas.shape
        fill(canvas, slice(base, height), slice(0, width), name, rng, rough, grain)
        kerb = slice(base, min(base + max(int(0.12 * m), 2), height))
        fill(canvas, kerb, slice(0, width), "concrete", rng)

    return paint_ground


def _tiles(canvas: Array, base: int, m: float, rng: Rng) -> None:
    height, width, _ = canvas.shape
    fill(canvas, slice(base, height), slice(0, width), "paving", rng, 0.06, 2.0)
    y, step = float(base), 0.10 * m
    while y < height:
        fill(canvas, slice(int(y), int(y) + 1), slice(0, width), "gravel", rng, 0.02)
        canvas[int(y) : int(y) + 1, :, :4] *= 0.75
        y, step = y + step, step * 1.25
    for x in np.arange(-width, 2 * width, 0.55 * m):
        foot = width / 2 + (x - width / 2) * 1.5
        line = [(x, base), (x + 1.5, base), (foot + 2, height), (foot, height)]
        paint(canvas, polygon(canvas, line), coat("paving"), 0.75)


def _road(canvas: Array, base: int, m: float, rng: Rng) -> None:
    height, width, _ = canvas.shape
    _even("asphalt", 0.12, 1.0)(canvas, base, m, rng)
    low = base + int(float(rng.uniform(0.3, 0.7)) * (height - base))
    for x in np.arange(0, width, 1.6 * m):
        dash = [(x, low), (x + 0.9 * m, low), (x + 0.85 * m, low + 0.12 * m), (x - 0.05 * m, low + 0.12 * m)]
        paint(canvas, polygon(canvas, dash), coat("paint"))


_BACKDROPS: tuple[Callable[[Array, int, float, Rng], None], ...] = (_bricks, _plaster, _shops, _park, _yard)
_GROUNDS: tuple[Callable[[Array, int, float, Rng], None], ...] = (
    _even("asphalt", 0.12, 1.0),
    _even("grass", 0.2, 1.2),
    _even("gravel", 0.15, 0.8),
    _tiles,
    _road,
)
