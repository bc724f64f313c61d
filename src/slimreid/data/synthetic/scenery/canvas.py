"""Painting materials: anti-aliased shapes that carry reflectance and heat instead of colour.

A canvas is a float32 array (H, W, 7). Each pixel says what is there, not how it looks; light and
sensors come later, so that one painting serves every modality.

| channel | what                                                             |
|---------|------------------------------------------------------------------|
| 0–2     | reflectance of visible light                                     |
| 3       | reflectance of near infrared                                     |
| 4       | how much the sun warms it                                        |
| 5       | heat of its own, 0 as the air … 1 as the core (skin, hot engine) |
| 6       | share of the pixel that is the object itself                     |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from slimreid.modalities import NIR, RGB, TIR

Array = NDArray[np.floating[Any]]
Point = tuple[float, float]

MATERIAL = slice(0, 6)
LIGHT = slice(0, 4)
VISIBLE, NEAR, SUN, HEAT, OBJECT = slice(0, 3), 3, 4, 5, 6
CHANNELS = 7
MODALITY_CHANNELS: dict[str, slice] = {RGB: VISIBLE, NIR: slice(3, 4), TIR: slice(4, 6)}
"""Channels that decide how a material looks in each modality."""


@dataclass(frozen=True)
class Region:
    """Part of a canvas covered by one shape."""

    rows: slice
    cols: slice
    cover: Array
    """(h, w) share of each pixel that is covered."""
    t: Array
    """(h, w) position from the shape's beginning (0) to its end (1)."""
    v: Array
    """(h, w) position across: −1 … 1 on flat shapes, the angle around the axis on round ones."""
    u: Array
    """(h, w) position across as seen from the camera, −1 … 1."""


@dataclass(frozen=True)
class Coat:
    """Material of a shape: base and alternative values (6,) and the pattern that mixes them per modality."""

    base: Array
    alt: Array
    patterns: Mapping[str, str]


def _soft(x: Array) -> Array:
    weight: Array = np.clip(x + 0.5, 0.0, 1.0)
    return weight


PATTERNS: dict[str, Callable[[Array, Array], Array]] = {
    "hoops": lambda t, v: _soft(2.0 * np.cos(t * 31.0)),
    "pins": lambda t, v: _soft(2.0 * np.cos(v * 9.0) - 0.6),
    "checks": lambda t, v: 0.5 * (_soft(2.0 * np.cos(t * 28.0)) + _soft(2.0 * np.cos(v * 8.0))),
    "band": lambda t, v: _soft(9.0 * (0.13 - abs(t - 0.42)) / 0.9),
    "yoke": lambda t, v: _soft(14.0 * (0.34 - t)),
    "hem": lambda t, v: _soft(14.0 * (t - 0.62)),
    "open": lambda t, v: _soft(6.0 * (0.42 - abs(v))),
    "logo": lambda t, v: _soft(3.0 * (1.0 - ((t - 0.38) / 0.2) ** 2 - (v / 0.6) ** 2)),
    "half": lambda t, v: _soft(5.0 * np.sin(v)),
    "fade": lambda t, v: np.clip(t, 0.0, 1.0),
    "blotch": lambda t, v: _soft(0.9 * (np.sin(9.0 * t + 3.1 * v) + np.sin(5.3 - 13.0 * t + 4.7 * v))),
}
"""Mixing weight of the alternative value at (t, v); `plain` has none."""


def tube(
    canvas: Array,
    start: Point,
    end: Point,
    radii: Sequence[float],
    turn: float = 0.0,
    round_ends: bool = True,
) -> Region | None:
    """Region of a tube from `start` to `end` (x, y pixels), its radius interpolated along `radii`.

    `turn` rotates the pattern around the axis. None when the tube is off the canvas.
    """
    height, width, _ = canvas.shape
    (ax, ay), (bx, by) = start, end
    length = max(float(np.hypot(bx - ax, by - ay)), 1e-3)
    reach = max(radii) + 1.5
    x0, x1 = max(int(min(ax, bx) - reach), 0), min(int(max(ax, bx) + reach) + 2, width)
    y0, y1 = max(int(min(ay, by) - reach), 0), min(int(max(ay, by) + reach) + 2, height)
    if x0 >= x1 or y0 >= y1:
        return None
    x = np.arange(x0, x1, dtype=np.float32)[None, :] + np.float32(0.5 - ax)
    y = np.arange(y0, y1, dtype=np.float32)[:, None] + np.float32(0.5 - ay)
    dx, dy = (bx - ax) / length, (by - ay) / length
    along, across = x * dx + y * dy, y * dx - x * dy
    t = along / length
    radius = np.interp(t, np.linspace(0, 1, len(radii)), radii).astype(np.float32)
    if round_ends:
        beyond = along - np.clip(along, 0.0, length)
        cover = np.clip(radius - np.hypot(across, beyond) + 0.5, 0.0, 1.0)
    else:
        cover = np.clip(radius - abs(across) + 0.5, 0.0, 1.0)
        cover *= np.clip(along + 0.5, 0.0, 1.0) * np.clip(length - along + 0.5, 0.0, 1.0)
    u = np.clip(across / np.maximum(radius, 0.5), -1.0, 1.0)
    # The tube runs downwards, so `across` grows to the left of the picture: −u is to the right.
    angle = np.arcsin(-u) - np.float32(turn)
    v = np.arctan2(np.sin(angle), np.cos(angle))
    return Region(slice(y0, y1), slice(x0, x1), cover, t, v, -u)


def ellipse(canvas: Array, centre: Point, radius_x: float, radius_y: float) -> Region | None:
    """Region of an upright ellipse."""
    (x, y), steps = centre, np.linspace(-1, 1, 17)
    radii = radius_x * np.sqrt(1 - steps**2)
    return tube(canvas, (x, y - radius_y), (x, y + radius_y), radii.tolist(), round_ends=False)


def polygon(
    canvas: Array, points: Sequence[Point], frame: tuple[Point, Point, Point] | None = None
) -> Region | None:
    """Region of a filled polygon of (x, y) pixels; `frame` is its origin, v-axis and t-axis in pixels."""
    height, width, _ = canvas.shape
    xs, ys = zip(*points, strict=True)
    x0, x1 = max(int(min(xs)) - 1, 0), min(int(max(xs)) + 2, width)
    y0, y1 = max(int(min(ys)) - 1, 0), min(int(max(ys)) + 2, height)
    if x0 >= x1 or y0 >= y1:
        return None
    h, w = y1 - y0, x1 - x0
    picture = Image.new("L", (2 * w, 2 * h))
    ImageDraw.Draw(picture).polygon(
        [(2 * (px - x0) - 0.5, 2 * (py - y0) - 0.5) for px, py in points], fill=255
    )
    cover = np.asarray(picture.reduce(2), dtype=np.float32) / np.float32(255)
    if frame is None:
        frame = ((0.5 * (min(xs) + max(xs)), min(ys)), (0.5 * (max(xs) - min(xs)), 0), (0, max(ys) - min(ys)))
    (ox, oy), (vx, vy), (tx, ty) = frame
    det = vx * ty - vy * tx
    if abs(det) < 1e-3:
        det = 1e-3
    x = np.arange(x0, x1, dtype=np.float32)[None, :] + np.float32(0.5 - ox)
    y = np.arange(y0, y1, dtype=np.float32)[:, None] + np.float32(0.5 - oy)
    v = (x * ty - y * tx) / np.float32(det)
    t = (y * vx - x * vy) / np.float32(det)
    return Region(slice(y0, y1), slice(x0, x1), cover, t, v, np.zeros_like(v))


def paint(
    canvas: Array,
    region: Region | None,
    coat: Coat,
    shade: Array | float = 1.0,
    is_object: bool = False,
    rim: float = 0.0,
) -> None:
    """Lay `coat` over `region`.

    `shade` (h, w) or a number multiplies what reflects light; `rim` is how much cooler a round shape
    is at its edge.
    """
    if region is None:
        return
    under = canvas[region.rows, region.cols]
    h, w = region.cover.shape
    value = np.empty((h, w, 6), dtype=np.float32)
    value[:] = coat.base
    for modality, pattern in coat.patterns.items():
        if pattern != "plain":
            mix = PATTERNS[pattern](region.t, region.v).astype(np.float32)
            part = MODALITY_CHANNELS[modality]
            value[..., part] += mix[..., None] * (coat.alt[part] - coat.base[part])
    value[..., LIGHT] *= np.asarray(shade, dtype=np.float32)[..., None]
    if rim:
        value[..., HEAT] *= 1.0 - np.float32(rim) * region.u**2
    cover = region.cover[..., None]
    under[..., MATERIAL] += cover * (value - under[..., MATERIAL])
    under[..., OBJECT] += region.cover * (np.float32(is_object) - under[..., OBJECT])


def add_heat(canvas: Array, region: Region | None, heat: float) -> None:
    """Warm a soft spot: full `heat` in the middle of a round region, none at its rim."""
    if region is not None:
        middle = np.clip(1.0 - region.u**2, 0, 1) * np.clip(4 * region.t * (1 - region.t), 0, 1)
        canvas[region.rows, region.cols, HEAT] += region.cover * middle * np.float32(heat)


def darken(canvas: Array, region: Region | None, strength: float) -> None:
    """Cast a soft shadow: light and the warmth of the sun both fall by `strength` in the middle."""
    if region is not None:
        middle = np.clip(1.0 - region.u**2, 0, 1) * np.clip(4 * region.t * (1 - region.t), 0, 1)
        factor = 1.0 - np.float32(strength) * region.cover * middle
        canvas[region.rows, region.cols, :5] *= factor[..., None]
