"""Painting a vehicle: a side outline drawn out to a solid, seen from any side and from above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from slimreid.data.synthetic.objects.people import Painter, Pose
from slimreid.data.synthetic.objects.vehicle_bodies import BODIES, Body
from slimreid.data.synthetic.objects.vehicle_looks import VehicleShape
from slimreid.data.synthetic.scenery.canvas import Array, Coat, add_heat, darken, ellipse, paint, polygon
from slimreid.data.synthetic.scenery.materials import Folds

Solid = tuple[float, float, float]  # metres forward, up, and to the right


class _Model(Painter):
    """Paints faces of one vehicle in its own coordinates."""

    @property
    def near(self) -> float:
        """The side that shows."""
        return 1.0 if self.cos >= 0 else -1.0

    def facing(self, normal: Solid) -> float:
        """Cosine between a face and the direction to the camera."""
        return self.depth(normal) * self.cosp + normal[1] * self.sinp

    def shade(self, normal: Solid) -> float:
        x, y, z = normal
        across, towards = x * self.cos + z * self.sin, self.depth(normal)
        return 0.62 + 0.34 * max(y, 0.0) + 0.18 * max(towards, 0.0) + 0.14 * self.pose.light * across

    def face(
        self,
        points: Sequence[Solid],
        normal: Solid,
        part: str,
        frame: tuple[Solid, Solid, Solid] | None = None,
        gloss: float = 1.0,
    ) -> None:
        """Paint one flat face; `frame` gives origin, end of the v-axis and end of the t-axis."""
        flat = None
        if frame is not None:
            o, v, t = (self.project(corner) for corner in frame)
            flat = (o, (v[0] - o[0], v[1] - o[1]), (t[0] - o[0], t[1] - o[1]))
        region = polygon(self.canvas, [self.project(p) for p in points], flat)
        if region is not None:
            shade = self.shade(normal) * gloss * (1 + 0.3 * self.folds.at(region))
            paint(self.canvas, region, self.coats[part], shade, self.is_object)

    def disc(self, x: float, y: float, z: float, radius: float, part: str, dim: float = 1.0) -> None:
        angles = np.linspace(0, 2 * np.pi, 20, endpoint=False)
        points = [(x + radius * float(np.cos(a)), y + radius * float(np.sin(a)), z) for a in angles]
        self.face(points, (0, 0, self.near), part, gloss=dim)


def paint_vehicle(
    canvas: Array,
    shape: VehicleShape,
    coats: Mapping[str, Coat],
    pose: Pose,
    folds: Folds,
    is_object: bool = True,
) -> None:
    """Paint one vehicle over the canvas (H, W, 7)."""
    body = BODIES[shape.body]
    model = _Model(canvas, coats, pose, folds, is_object)
    _ground(model, body, shape)
    _treads(model, body, shape)
    _hull(model, body, shape)
    _wheels(model, body, shape)
    if body.cargo is not None:
        _cargo(model, body, shape, body.cargo)
    if shape.rack:
        _rack(model, body, shape)
    _exhaust(model, body, shape)


def half_extent(shape: VehicleShape, yaw: float, pitch: float) -> tuple[float, float]:
    """Half the width and the full height in metres of a vehicle as seen from this side."""
    body = BODIES[shape.body]
    length = shape.length * max(abs(x) for x, _, _ in body.outline)
    tall = shape.height * max(body.cargo[3] if body.cargo else 0.0, max(y for _, y, _ in body.outline))
    half_width = 0.5 * max(body.width, body.cargo_width)
    wide = length * abs(np.cos(yaw)) + half_width * abs(np.sin(yaw))
    deep = length * abs(np.sin(yaw)) + half_width * abs(np.cos(yaw))
    return float(wide), float(tall * np.cos(pitch) + 2 * deep * np.sin(pitch))


def _ground(m: _Model, body: Body, shape: VehicleShape) -> None:
    wide, _ = half_extent(shape, m.pose.yaw, m.pose.pitch)
    s, (x, y) = m.pose.scale, m.pose.foot
    deep = 0.35 + 1.2 * m.sinp + abs(m.sin) * m.sinp * 2.0
    for strength in (0.6, 0.45):
        darken(m.canvas, ellipse(m.canvas, (x, y), 1.12 * wide * s, deep * s), strength)
    # The engine warms the road below.
    ex, ey = m.project((0.45 * body.outline[0][0] * shape.length, 0.0, 0.0))
    warmth = 0.12 * float(m.coats["bonnet"].base[5])
    add_heat(m.canvas, ellipse(m.canvas, (ex, ey), 1.2 * s, 0.35 * s), warmth)


def _hull(m: _Model, body: Body, shape: VehicleShape) -> None:
    half = 0.5 * body.width
    corners = [(x * shape.length, y * shape.height, part) for x, y, part in body.outline]
    faces = []
    for (x0, y0, part), (x1, y1, _) in pairwise(corners):
        size = float(np.hypot(x1 - x0, y1 - y0))
        normal = ((y1 - y0) / size, (x0 - x1) / size, 0.0)
        if m.facing(normal) > 0:
            quad = [(x0, y0, half), (x1, y1, half), (x1, y1, -half), (x0, y0, -half)]
            faces.append((m.depth((0.5 * (x0 + x1), 0, 0)), part, normal, quad))
    for _, part, normal, quad in sorted(faces, key=lambda face: face[0]):
        _crosswise(m, part, normal, quad)
    normal = (0.0, 0.0, m.near)
    if m.facing(normal) > 0.02:
        _flank(m, body, shape, corners, normal)


def _crosswise(m: _Model, part: str, normal: Solid, quad: list[Solid]) -> None:
    """A face that runs across the vehicle: front, bonnet, windscreen, roof, rear."""
    (x0, y0, h), (x1, y1, _) = quad[0], quad[1]

    def patch(low: float, high: float, left: float, right: float, name: str) -> None:
        a = (x0 + low * (x1 - x0), y0 + low * (y1 - y0))
        b = (x0 + high * (x1 - x0), y0 + high * (y1 - y0))
        points = [(*a, left * h), (*b, left * h), (*b, right * h), (*a, right * h)]
        m.face(points, normal, name, ((*b, 0.0), (*b, h), (*a, 0.0)))

    coat = {"front": "body", "rear": "body", "bed": "grille", "bonnet_rear": "roof", "window": "roof"}
    patch(0, 1, -1, 1, coat.get(part, part))
    if part == "window":
        patch(0.10, 0.92, -0.90, 0.90, "window")
    if part == "front":
        patch(0.0, 0.28, -1, 1, "bumper")
        patch(0.42, 0.78, -0.52, 0.52, "grille")
        for side in (-1, 1):
            patch(0.52, 0.86, side * 0.62, side * 0.95, "lamp")
        patch(0.08, 0.24, -0.25, 0.25, "plate")
    if part == "rear":
        patch(0.62, 1.0, -1, 1, "bumper")
        for side in (-1, 1):
            patch(0.18, 0.52, side * 0.74, side * 0.96, "tail")
        patch(0.36, 0.54, -0.28, 0.28, "plate")
        if y0 > 1.8:  # a van or bus has a window in its rear door
            patch(0.06, 0.34, -0.7, 0.7, "window")


def _flank(
    m: _Model, body: Body, shape: VehicleShape, corners: list[tuple[float, float, str]], normal: Solid
) -> None:
    z = 0.5 * body.width * m.near
    low, belt = corners[0][1], body.belt * shape.height
    front, rear = corners[0][0], corners[-1][0]
    middle, reach = 0.5 * (front + rear), 0.5 * (front - rear)
    frame = ((middle, belt, z), (middle + reach, belt, z), (middle, low, z))
    m.face([(x, y, z) for x, y, _ in corners], normal, "body", frame)
    hood = [(x, y, z) for x, y, part in corners if part in ("bonnet", "front")]
    if len(hood) == 2:  # the engine sits behind the front wing
        x = corners[2][0]
        m.face([(front, low + 0.1, z), hood[1], (x, corners[2][1], z), (x, low + 0.1, z)], normal, "bonnet")
    sill = [(front, low, z), (front, low + 0.12, z), (rear, low + 0.12, z), (rear, low, z)]
    m.face(sill, normal, "bumper")
    for window in body.windows:
        m.face([(x * shape.length, y * shape.height, z) for x, y in window], normal, "window")
    for window in body.windows[:2]:  # a seam below the rear edge of each door
        x = min(px for px, _ in window[:2]) * shape.length
        m.face(
            [(x, low + 0.15, z), (x + 0.04, low + 0.15, z), (x + 0.04, belt, z), (x, belt, z)],
            normal,
            "grille",
        )
    for x, part in ((front, "lamp"), (rear, "tail")):
        inward = -0.28 if x > 0 else 0.22
        y = 0.35 * low + 0.65 * (corners[1][1] if x > 0 else min(corners[-2][1], 1.3))
        m.face(
            [(x, y - 0.09, z), (x, y + 0.09, z), (x + inward, y + 0.07, z), (x + inward, y - 0.05, z)],
            normal,
            part,
        )


def _treads(m: _Model, body: Body, shape: VehicleShape) -> None:
    """The rolling surface of all wheels; the hull hides most of it."""
    radius = body.radius * shape.wheel
    for side, dim in ((-m.near, 0.5), (m.near, 0.8)):
        for x in body.wheels:
            part = "wheel_front" if x > 0 else "wheel_rear"
            for inset in (0.24, 0.12, 0.0):
                m.disc(x * shape.length, radius, (0.5 * body.width - inset) * side, radius, part, dim)


def _wheels(m: _Model, body: Body, shape: VehicleShape) -> None:
    """The wheels on the side that shows."""
    if m.facing((0, 0, m.near)) > 0.1:
        radius, z = body.radius * shape.wheel, 0.5 * body.width * m.near
        for x in body.wheels:
            part = "wheel_front" if x > 0 else "wheel_rear"
            m.disc(x * shape.length, radius, z, radius, part)
            m.disc(x * shape.length, radius, z, 0.62 * radius, "rim")
            m.disc(x * shape.length, radius, z, 0.16 * radius, part)


def _cargo(m: _Model, body: Body, shape: VehicleShape, box: tuple[float, float, float, float]) -> None:
    rear, front, low, high = box[0] * shape.length, box[1] * shape.length, box[2], box[3] * shape.height
    h, middle = 0.5 * body.cargo_width, 0.5 * (box[0] + box[1]) * shape.length
    z = h * m.near
    faces: list[tuple[Solid, list[Solid]]] = [
        ((0, 1, 0), [(rear, high, -h), (front, high, -h), (front, high, h), (rear, high, h)]),
        ((-1, 0, 0), [(rear, low, -h), (rear, high, -h), (rear, high, h), (rear, low, h)]),
        ((0, 0, m.near), [(rear, low, z), (front, low, z), (front, high, z), (rear, high, z)]),
    ]
    if m.facing((1, 0, 0)) > 0:  # only what stands above the cab shows from the front
        top = 2.2 * shape.height
        m.face([(front, top, -h), (front, high, -h), (front, high, h), (front, top, h)], (1, 0, 0), "cargo")
    for normal, points in faces:
        if m.facing(normal) > 0.02:
            if normal[2]:
                frame = ((middle, high, z), (front, high, z), (middle, low, z))
            else:
                o = points[1]
                frame = ((o[0], high, 0.0), (o[0], high, h), (o[0] + normal[1], low, 0.0))
            m.face(points, normal, "cargo", frame)


def _rack(m: _Model, body: Body, shape: VehicleShape) -> None:
    roof = [(x * shape.length, y * shape.height) for x, y, _ in body.outline]
    high = max(y for _, y in roof)
    xs = [x for x, y in roof if y > high - 0.1]
    h = 0.36 * body.width
    for x in (0.8 * max(xs) + 0.2 * min(xs), 0.2 * max(xs) + 0.8 * min(xs)):
        bar = [
            (x, high + 0.05, -h),
            (x + 0.10, high + 0.05, -h),
            (x + 0.10, high + 0.14, h),
            (x, high + 0.14, h),
        ]
        m.face(bar, (0, 1, 0), "bumper")
        z = h * m.near
        post = [(x, high, z), (x + 0.1, high, z), (x + 0.1, high + 0.14, z), (x, high + 0.14, z)]
        m.face(post, (0, 0, m.near), "bumper")


def _exhaust(m: _Model, body: Body, shape: VehicleShape) -> None:
    x = body.outline[-1][0] * shape.length
    spot = m.project((x * 0.98, 0.34, 0.3 * body.width))
    visible = m.facing((-1, 0, 0)) > 0 or m.near > 0
    if visible:
        region = ellipse(m.canvas, spot, 0.34 * m.pose.scale, 0.26 * m.pose.scale)
        add_heat(m.canvas, region, float(m.coats["exhaust"].base[5]))
