"""Things that stand around: posts, plants, street furniture, and other people and vehicles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slimreid.data.synthetic.objects.identity import draw_looks
from slimreid.data.synthetic.objects.looks import coats, pick
from slimreid.data.synthetic.objects.people import Pose, paint_person
from slimreid.data.synthetic.objects.person_looks import person_shape
from slimreid.data.synthetic.objects.vehicle_looks import vehicle_shape
from slimreid.data.synthetic.objects.vehicles import half_extent, paint_vehicle
from slimreid.data.synthetic.scenery.canvas import Array, Coat, Point, ellipse, paint, polygon, tube
from slimreid.data.synthetic.scenery.materials import Folds, coat

Rng = np.random.Generator
_PERSON = 1.72  # metres


def _box(canvas: Array, x0: float, y0: float, x1: float, y1: float, what: Coat, shade: float = 1.0) -> None:
    paint(canvas, polygon(canvas, [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]), what, shade)


def _leg(canvas: Array, foot: Point, half: float, height: float, what: Coat, shade: float = 1.0) -> None:
    """An upright board of twice `half` width on the ground."""
    x, y = foot
    _box(canvas, x - half, y - height, x + half, y, what, shade)


def post(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A lamp post or the trunk of a street sign."""
    (x, y), thick = foot, float(rng.uniform(0.05, 0.12)) * metre
    region = tube(canvas, (x, y - 5 * metre), (x, y), [thick, thick], 0.0, False)
    if region is not None:
        shade = 0.7 + 0.4 * np.sqrt(1 - region.u**2)
        paint(canvas, region, coat(pick(rng, ("steel", "dark", "green", "wood"))), shade)


def tree(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A trunk with a crown."""
    x, y = foot
    thick = float(rng.uniform(0.12, 0.22)) * metre
    paint(canvas, tube(canvas, (x, y - 2.6 * metre), (x, y), [0.7 * thick, thick], 0.0, False), coat("bark"))
    _leaves(canvas, (x, y - 3.0 * metre), 1.3 * metre, 1.1 * metre, rng)


def bush(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A round bush."""
    size = float(rng.uniform(0.35, 0.6)) * metre
    _leaves(canvas, (foot[0], foot[1] - 0.8 * size), 1.2 * size, size, rng)


def _leaves(canvas: Array, centre: Point, wide: float, high: float, rng: Rng) -> None:
    folds = Folds(rng, 0.22, 2.0)
    for angle, reach in zip(rng.uniform(0, 2 * np.pi, 9), rng.uniform(0.2, 0.75, 9), strict=True):
        x, y = centre[0] + wide * reach * np.cos(angle), centre[1] + high * reach * np.sin(angle)
        region = ellipse(canvas, (float(x), float(y)), 0.5 * wide, 0.5 * high)
        if region is not None:
            shade = (1.15 - 0.45 * region.t) * (1 + folds.at(region))
            paint(canvas, region, coat("leaves"), np.clip(shade, 0.25, 1.7))


def bin_(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A litter bin or electricity box."""
    (x, y), w = foot, float(rng.uniform(0.22, 0.38)) * metre
    h = float(rng.uniform(0.8, 1.15)) * metre
    what = coat(pick(rng, ("green", "steel", "blue", "dark", "yellow")))
    _box(canvas, x - w, y - h, x + w, y, what, 0.9)
    _box(canvas, x - 1.1 * w, y - h - 0.08 * metre, x + 1.1 * w, y - h, what, 0.65)


def sign(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A board on two legs."""
    (x, y), w = foot, float(rng.uniform(0.3, 0.6)) * metre
    face = coat(pick(rng, ("yellow", "red", "blue", "paint")))
    for side in (-0.7, 0.7):
        _leg(canvas, (x + side * w, y), 0.04 * metre, 0.8 * metre, coat("steel"))
    _box(canvas, x - w, y - 1.3 * metre, x + w, y - 0.6 * metre, face)
    _box(canvas, x - 0.8 * w, y - 1.1 * metre, x + 0.8 * w, y - 1.0 * metre, coat("dark"))


def barrier(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A striped barrier or a rail."""
    (x, y), w = foot, float(rng.uniform(0.7, 1.4)) * metre
    striped = rng.random() < 0.5
    for k in range(8):
        what = coat(("red", "paint")[k % 2] if striped else "steel")
        left = x - w + 2 * w * k / 8
        _box(canvas, left, y - 0.95 * metre, left + w / 4 + 1, y - 0.72 * metre, what)
    for side in (-0.85, 0.85):
        _leg(canvas, (x + side * w, y), 0.04 * metre, 0.75 * metre, coat("steel"), 0.8)


def bench(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """A bench from the front."""
    (x, y), w = foot, 0.8 * metre
    for top in (0.9, 0.72, 0.45):
        _box(
            canvas,
            x - w,
            y - top * metre,
            x + w,
            y - (top - 0.1) * metre,
            coat("wood"),
            float(rng.uniform(0.8, 1.1)),
        )
    for side in (-0.8, 0.8):
        _leg(canvas, (x + side * w, y), 0.05 * metre, 0.85 * metre, coat("dark"))


def stranger(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """Another person, nobody's identity."""
    pose = Pose(
        foot=foot,
        scale=_PERSON * metre * float(rng.uniform(0.9, 1.05)),
        yaw=float(rng.uniform(-np.pi, np.pi)),
        pitch=0.1,
        phase=float(rng.uniform(0, 2 * np.pi)),
        stride=float(rng.uniform(0.1, 0.5)),
        light=float(rng.uniform(-0.5, 0.5)),
    )
    coat_of = coats(draw_looks("people", rng))
    paint_person(canvas, person_shape(rng), coat_of, pose, Folds(rng), is_object=False)


def parked(canvas: Array, foot: Point, metre: float, rng: Rng) -> None:
    """Another vehicle, nobody's identity; mostly cold."""
    shape, yaw = vehicle_shape(rng), float(rng.uniform(-np.pi, np.pi))
    wide, _ = half_extent(shape, yaw, 0.15)
    pose = Pose(foot, metre * min(1.0, 2.6 / wide), yaw, 0.15, light=float(rng.uniform(-0.5, 0.5)))
    paint_vehicle(canvas, shape, coats(draw_looks("vehicles", rng)), pose, Folds(rng), is_object=False)


Clutter = Callable[[Array, Point, float, Rng], None]
STANDING: tuple[Clutter, ...] = (post, tree, bush, bin_, sign, barrier, bench)
"""What may stand in the background."""
LIVELY: tuple[Clutter, ...] = (stranger, parked)
"""What looks like the objects themselves."""
IN_FRONT: tuple[Clutter, ...] = (post, bush, bin_, sign, barrier)
"""What may hide a part of the object."""
