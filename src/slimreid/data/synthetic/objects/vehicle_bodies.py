"""Outlines of vehicles: what distinguishes a sedan from a van."""

from __future__ import annotations

from dataclasses import dataclass

Side = tuple[float, float]  # metres forward, metres up


@dataclass(frozen=True)
class Body:
    """Outline of a vehicle from the front bottom over the top to the rear bottom, and what is on it."""

    outline: tuple[tuple[float, float, str], ...]
    """Corners with the part that the edge to the next one belongs to."""
    windows: tuple[tuple[Side, ...], ...]
    wheels: tuple[float, ...]
    radius: float
    width: float
    belt: float
    """Height below which doors and liveries begin."""
    cargo: tuple[float, float, float, float] | None = None
    """A box of goods on top: rear, front, bottom, top."""
    cargo_width: float = 1.0


def _row(start: float, stop: float, count: int, low: float, high: float) -> tuple[tuple[Side, ...], ...]:
    """A row of rectangular windows."""
    step = (stop - start) / count
    gap = 0.08 * step
    edges = [(start + k * step + gap, start + (k + 1) * step - gap) for k in range(count)]
    return tuple(((a, low), (b, low), (b, high), (a, high)) for a, b in edges)


BODIES: dict[str, Body] = {
    "sedan": Body(
        ((2.25, 0.28, "front"), (2.28, 0.72, "bonnet"), (1.0, 0.95, "window"), (0.3, 1.40, "roof"),
         (-0.95, 1.40, "window"), (-1.6, 1.02, "bonnet_rear"), (-2.22, 0.97, "rear"), (-2.25, 0.30, "")),
        (((0.82, 0.96), (-0.22, 0.96), (-0.22, 1.34), (0.26, 1.34)),
         ((-0.32, 0.96), (-1.4, 0.98), (-0.92, 1.34), (-0.32, 1.34))),
        (1.38, -1.35), 0.33, 1.75, 0.93,
    ),
    "hatchback": Body(
        ((1.9, 0.28, "front"), (1.92, 0.75, "bonnet"), (1.0, 0.98, "window"), (0.35, 1.48, "roof"),
         (-1.45, 1.46, "window"), (-1.85, 0.95, "rear"), (-1.88, 0.32, "")),
        (((0.84, 0.98), (-0.25, 0.98), (-0.25, 1.41), (0.33, 1.41)),
         ((-0.35, 0.98), (-1.6, 1.02), (-1.38, 1.40), (-0.35, 1.41))),
        (1.2, -1.2), 0.32, 1.7, 0.95,
    ),
    "suv": Body(
        ((2.25, 0.38, "front"), (2.28, 0.98, "bonnet"), (1.15, 1.12, "window"), (0.6, 1.72, "roof"),
         (-2.0, 1.70, "window"), (-2.22, 1.15, "rear"), (-2.25, 0.40, "")),
        (((1.0, 1.13), (0.05, 1.13), (0.05, 1.64), (0.56, 1.64)),
         ((-0.05, 1.13), (-1.0, 1.13), (-1.0, 1.63), (-0.05, 1.64)),
         ((-1.1, 1.14), (-2.0, 1.18), (-1.85, 1.62), (-1.1, 1.63))),
        (1.42, -1.4), 0.40, 1.9, 1.1,
    ),
    "van": Body(
        ((2.45, 0.30, "front"), (2.48, 0.95, "bonnet"), (1.95, 1.15, "window"), (1.35, 2.05, "roof"),
         (-2.4, 2.08, "rear"), (-2.45, 0.32, "")),
        (((1.78, 1.18), (0.85, 1.18), (0.85, 1.75), (1.42, 1.75)),),
        (1.6, -1.5), 0.36, 1.95, 1.15,
    ),
    "pickup": Body(
        ((2.5, 0.40, "front"), (2.52, 1.0, "bonnet"), (1.3, 1.14, "window"), (0.75, 1.72, "roof"),
         (-0.55, 1.72, "window"), (-0.75, 1.12, "bed"), (-2.5, 1.08, "rear"), (-2.5, 0.42, "")),
        (((1.12, 1.15), (0.25, 1.15), (0.25, 1.64), (0.72, 1.64)),
         ((0.15, 1.15), (-0.62, 1.15), (-0.48, 1.64), (0.15, 1.64))),
        (1.6, -1.55), 0.42, 1.9, 1.12,
    ),
    "truck": Body(
        ((3.2, 0.40, "front"), (3.22, 1.25, "window"), (2.95, 2.15, "roof"), (1.75, 2.2, "rear"),
         (1.7, 0.95, "bed"), (-3.2, 0.95, "rear"), (-3.2, 0.55, "")),
        (((2.98, 1.32), (2.2, 1.32), (2.2, 1.98), (2.82, 1.98)),),
        (2.35, -1.5, -2.4), 0.46, 2.2, 1.25, (-3.3, 1.6, 0.95, 3.0), 2.3,
    ),
    "bus": Body(
        ((4.0, 0.35, "front"), (4.05, 1.15, "window"), (3.9, 2.6, "roof"),
         (-4.0, 2.6, "rear"), (-4.0, 0.38, "")),
        _row(-3.8, 3.7, 6, 1.3, 2.25), (2.6, -2.3), 0.46, 2.4, 1.25,
    ),
}  # fmt: skip
