"""Painting a person: a jointed body in three dimensions, walking, seen from any side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slimreid.data.synthetic.objects.person_looks import PersonShape
from slimreid.data.synthetic.scenery.canvas import (
    Array,
    Coat,
    Point,
    Region,
    add_heat,
    darken,
    ellipse,
    paint,
    tube,
)
from slimreid.data.synthetic.scenery.materials import Folds

Joint = tuple[float, float, float]  # to the person's left, up, forward; the body is 1 high


@dataclass(frozen=True)
class Pose:
    """Where an object stands on the canvas and how it is turned."""

    foot: Point
    """(x, y) pixels of the point on the ground below the middle."""
    scale: float
    """Pixels per unit: the height of a person, a metre of a vehicle."""
    yaw: float
    """Radians; a person at 0 faces the camera, a vehicle at 0 drives to the right."""
    pitch: float
    """Radians by which the camera looks down."""
    phase: float = 0.0
    """Of the walk, radians."""
    stride: float = 0.5
    """Largest angle of the leg, radians."""
    light: float = 0.0
    """Side the light comes from: −1 left … 1 right."""


class Painter:
    """Paints parts of one object, given in coordinates (x, up, z) of its own, on a canvas."""

    def __init__(self, canvas: Array, coats: Mapping[str, Coat], pose: Pose, folds: Folds, is_object: bool):
        self.canvas, self.coats, self.pose, self.folds, self.is_object = canvas, coats, pose, folds, is_object
        self.cos, self.sin = float(np.cos(pose.yaw)), float(np.sin(pose.yaw))
        self.cosp, self.sinp = float(np.cos(pose.pitch)), float(np.sin(pose.pitch))

    def depth(self, place: tuple[float, float, float]) -> float:
        """How much nearer to the camera than the middle of the object."""
        x, _, z = place
        return z * self.cos - x * self.sin

    def project(self, place: tuple[float, float, float]) -> Point:
        """Where a place is on the canvas."""
        x, y, z = place
        up = y * self.cosp - self.depth(place) * self.sinp
        across = x * self.cos + z * self.sin
        return self.pose.foot[0] + across * self.pose.scale, self.pose.foot[1] - up * self.pose.scale


class _Figure(Painter):
    """Paints parts of one person in body coordinates."""

    def wide(self, half_width: float, half_depth: float) -> float:
        """Half the width in pixels of an elliptic body part as seen from this side."""
        return float(np.hypot(half_width * self.cos, half_depth * self.sin)) * self.pose.scale

    def cover(self, region: Region | None, part: str) -> None:
        if region is None:
            return
        shade = 0.74 + 0.26 * np.sqrt(1 - region.u**2) + 0.16 * self.pose.light * region.u
        folds = self.folds.at(region) * np.float32(0.3 if part == "skin" else 1.0)
        paint(self.canvas, region, self.coats[part], shade * (1 + folds), self.is_object, rim=0.25)

    def limb(self, part: str, start: Joint, end: Joint, radii: tuple[float, ...]) -> None:
        a, b = self.project(start), self.project(end)
        self.cover(tube(self.canvas, a, b, [r * self.pose.scale for r in radii], self.pose.yaw), part)


def _swing(hip: Joint, upper: float, lower: float, angle: float, bend: float) -> tuple[Joint, Joint]:
    """Middle and end joint of a limb that hangs from `hip`, swung forward by `angle` and bent by `bend`."""
    x, y, z = hip
    middle = (x, y - upper * float(np.cos(angle)), z + upper * float(np.sin(angle)))
    end = (
        x,
        middle[1] - lower * float(np.cos(angle - bend)),
        middle[2] + lower * float(np.sin(angle - bend)),
    )
    return middle, end


def paint_person(
    canvas: Array,
    shape: PersonShape,
    coats: Mapping[str, Coat],
    pose: Pose,
    folds: Folds,
    is_object: bool = True,
) -> None:
    """Paint one person over the canvas (H, W, 7)."""
    figure = _Figure(canvas, coats, pose, folds, is_object)
    hip_height = 0.52 * shape.legs
    layers: list[tuple[float, Callable[[], None]]] = [
        (0.0, lambda: _torso(figure, shape, hip_height)),
        (0.004 + 0.01 * max(figure.cos, 0.0), lambda: _head(figure, shape)),
    ]
    for side in (-1.0, 1.0):
        layers.append(_leg(figure, shape, hip_height, side))
        layers.append(_arm(figure, shape, side))
    layers += _bag(figure, shape, hip_height)
    x, y = pose.foot
    darken(
        canvas,
        ellipse(canvas, (x - 0.03 * pose.light * pose.scale, y), 0.2 * pose.scale, 0.035 * pose.scale),
        0.45,
    )
    for _, draw in sorted(layers, key=lambda layer: layer[0]):
        draw()


def _leg(f: _Figure, shape: PersonShape, hip_height: float, side: float) -> tuple[float, Callable[[], None]]:
    angle = f.pose.stride * float(np.sin(f.pose.phase)) * side
    bend = 0.15 + f.pose.stride * max(0.0, -float(np.cos(f.pose.phase)) * side)
    hip = (0.052 * shape.build * side, hip_height, 0.0)
    knee, ankle = _swing(hip, hip_height * 0.47, hip_height * 0.43, angle, bend)
    toe = (ankle[0] * 1.15, ankle[1] - 0.032, ankle[2] + 0.085)
    heel = (ankle[0], ankle[1] - 0.028, ankle[2] - 0.015)
    b = 0.5 + 0.5 * shape.build

    def draw() -> None:
        bare = shape.lower != "trousers"
        f.limb(
            "skin" if bare else "lower", knee, ankle, (0.040 * b, 0.042 * b, 0.024 * b if bare else 0.034 * b)
        )
        if shape.lower == "shorts":
            f.limb("skin", hip, knee, (0.064 * b, 0.044 * b))
            above = tuple(h + 0.72 * (k - h) for h, k in zip(hip, knee, strict=True))
            f.limb("lower", hip, (above[0], above[1], above[2]), (0.072 * b, 0.062 * b))
        elif not bare:
            f.limb("lower", hip, knee, (0.068 * b, 0.046 * b))
        f.limb("shoes", heel, toe, (0.028, 0.024))

    # Jacket and skirt hide the legs where they start, so both legs come before the torso.
    return min(f.depth(knee), 0.0) - 0.001, draw


def _arm(f: _Figure, shape: PersonShape, side: float) -> tuple[float, Callable[[], None]]:
    angle = -0.8 * f.pose.stride * float(np.sin(f.pose.phase)) * side
    reach = 0.116 * shape.shoulders * (0.55 + 0.45 * shape.build)
    shoulder = (reach * side, 0.795, 0.0)
    elbow, wrist = _swing((reach * 1.12 * side, 0.795, 0.0), 0.165, 0.15, angle, -0.35)
    b = 0.45 + 0.55 * shape.build

    def draw() -> None:
        bare = shape.sleeves == "short"
        f.limb("skin" if bare else "sleeve", elbow, wrist, (0.028 * b, 0.021 * b))
        f.limb("sleeve", shoulder, elbow, (0.040 * b, 0.031 * b))
        hand = (wrist[0], wrist[1] - 0.02, wrist[2] + 0.008)
        f.limb("skin", wrist, hand, (0.019, 0.019))
        if shape.bag == "hand" and side > 0:
            f.limb(
                "bag",
                (wrist[0], wrist[1] - 0.06, wrist[2]),
                (wrist[0], wrist[1] - 0.15, wrist[2]),
                (0.04, 0.055),
            )

    return f.depth(elbow) + 0.03 * abs(f.cos), draw


def _torso(f: _Figure, shape: PersonShape, hip_height: float) -> None:
    b, s = shape.build, f.pose.scale
    shoulders = f.wide(0.122 * shape.shoulders * (0.55 + 0.45 * b), 0.065 * b)
    chest, waist = f.wide(0.118 * b, 0.075 * b), f.wide(0.100 * b, 0.072 * b**1.3)
    hips = f.wide(0.108 * b, 0.080 * b)
    top, hem = f.project((0, 0.845, 0)), f.project((0, hip_height - 0.03 - shape.coat, 0))
    if "skirt" in shape.lower:
        length = 0.24 if shape.lower == "skirt" else 0.40
        low = f.project((0, hip_height - length, 0))
        wide = hips * (1.35 if shape.lower == "skirt" else 1.45)
        start = f.project((0, hip_height + 0.03, 0))
        f.cover(tube(f.canvas, start, low, [hips * 0.9, hips * 1.05, wide], f.pose.yaw, False), "lower")
    else:
        waistline, low = f.project((0, hip_height + 0.04, 0)), f.project((0, hip_height - 0.035, 0))
        f.cover(tube(f.canvas, waistline, low, [hips * 0.85, hips * 0.85], f.pose.yaw), "lower")
    f.limb("skin", (0, 0.90, 0), (0, 0.83, 0), (0.032 * (0.6 + 0.4 * b), 0.036))
    radii = [0.42 * shoulders, 0.86 * shoulders, shoulders, chest, 0.5 * (chest + waist), waist, hips, hips]
    if shape.coat:
        radii[-2:] = [hips * 1.02, hips * 1.08, hips * 1.15]
    region = tube(f.canvas, top, hem, radii, f.pose.yaw, False)
    f.cover(region, "upper")
    # Heat escapes at the collar whatever is worn.
    add_heat(f.canvas, ellipse(f.canvas, f.project((0, 0.84, 0.03)), 0.06 * s, 0.03 * s), 0.2)


def _head(f: _Figure, shape: PersonShape) -> None:
    s, canvas = f.pose.scale, f.canvas
    centre = (0.0, 0.925, 0.012)
    rx, ry = f.wide(0.054, 0.064), 0.068 * s

    def at(up: float, forward: float) -> Point:
        return f.project((centre[0], centre[1] + up, centre[2] + forward))

    hair = "skin" if shape.hair == "bald" else "hair"
    if shape.hair == "long" and f.cos > 0:
        f.cover(tube(canvas, at(0.01, -0.02), at(-0.10, -0.03), [rx * 1.1, rx * 1.15, rx * 0.95]), hair)
    f.cover(ellipse(canvas, at(0.008, -0.006), rx * 1.06, ry * 1.04), hair)
    if f.cos > -0.55:  # a face shows, narrower the further it turns away
        face = at(-0.012, 0.034)
        narrow = 0.62 + 0.26 * max(f.cos, 0.0)
        f.cover(ellipse(canvas, face, rx * narrow, ry * 0.80), "skin")
        if f.cos > 0:
            eyes = at(0.008, 0.05)
            darken(canvas, ellipse(canvas, eyes, rx * narrow * 0.8, ry * 0.13), 0.4 * f.cos)
    if shape.hair == "long" and f.cos <= 0:
        f.cover(tube(canvas, at(0.01, -0.02), at(-0.115, -0.05), [rx, rx * 1.12, rx * 0.9]), hair)
    if shape.hair == "bun":
        f.cover(ellipse(canvas, at(0.055, -0.045), 0.026 * s, 0.026 * s), hair)
    if shape.hat:
        f.cover(ellipse(canvas, at(0.045, 0.0), rx * 1.14, ry * 0.52), "hat")
        brim = at(0.022, 0.055)
        f.cover(ellipse(canvas, brim, rx * (0.7 + 0.3 * abs(f.cos)), 0.011 * s), "hat")


def _bag(f: _Figure, shape: PersonShape, hip_height: float) -> list[tuple[float, Callable[[], None]]]:
    s = f.pose.scale
    if shape.bag == "backpack":
        top, bottom = (0.0, 0.80, -0.095), (0.0, 0.60, -0.105)

        def pack() -> None:
            wide = f.wide(0.092, 0.052)
            f.cover(tube(f.canvas, f.project(top), f.project(bottom), [wide * 0.8, wide, wide]), "bag")

        def straps() -> None:
            if f.cos > 0.2:
                for side in (-1, 1):
                    f.limb("bag", (0.062 * side, 0.82, 0.06), (0.07 * side, 0.66, 0.065), (0.011, 0.010))

        return [(f.depth(top) * 0.8, pack), (0.001, straps)]
    if shape.bag == "shoulder":
        side = 0.15 * shape.build
        middle = (side, hip_height + 0.05, 0.0)

        def body() -> None:
            x, y = f.project(middle)
            wide = f.wide(0.035, 0.085)
            f.cover(tube(f.canvas, (x, y - 0.045 * s), (x, y + 0.045 * s), [wide, wide], 0.0, False), "bag")

        def strap() -> None:
            front = 0.07 * (1 if f.cos > 0 else -1)
            f.limb("bag", (-0.07, 0.83, front), (side, hip_height + 0.09, front * 0.4), (0.009, 0.009))

        return [(f.depth(middle) + 0.02, body), (0.001, strap)]
    return []
