"""What vehicles can look like: body type and proportions, and their look in each modality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slimreid.data.synthetic.objects.looks import (
    COLOURS,
    REFLECTANCE,
    Finish,
    Look,
    Rng,
    make_look,
    pick,
    solid,
    two_colours,
    two_levels,
    with_sun,
)
from slimreid.modalities import NIR, RGB, TIR

_PAINT = ("plain", "plain", "plain", "band", "yoke", "logo", "half", "blotch", "hem")


@dataclass(frozen=True)
class VehicleShape:
    """Body type and proportions: what shows in every modality."""

    body: str
    length: float
    height: float
    wheel: float
    rack: bool


def vehicle_shape(rng: Rng) -> VehicleShape:
    """Draw a body type and its proportions."""
    return VehicleShape(
        body=pick(rng, ("sedan", "hatchback", "suv", "van", "pickup", "truck", "bus")),
        length=pick(rng, (0.93, 1.07)),
        height=pick(rng, (0.95, 1.06)),
        wheel=pick(rng, (0.92, 1.1)),
        rack=bool(rng.random() < 0.3),
    )


def _vehicle_rgb(rng: Rng) -> Look:
    body, body_alt = two_colours(rng, tuple(COLOURS))
    cargo, cargo_alt = two_colours(rng, tuple(COLOURS))
    return make_look(
        body=Finish(body, body_alt, pick(rng, _PAINT)),
        bonnet=solid(*body),
        roof=solid(*pick(rng, (body, body, body_alt))),
        cargo=Finish(cargo, cargo_alt, pick(rng, _PAINT)),
        window=solid(0.10, 0.12, 0.14),
        wheel_front=solid(0.06, 0.06, 0.06),
        wheel_rear=solid(0.06, 0.06, 0.06),
        rim=solid(*pick(rng, ((0.75, 0.75, 0.77), (0.12, 0.12, 0.13), (0.62, 0.50, 0.22)))),
        bumper=solid(*pick(rng, (body, COLOURS["charcoal"], (0.70, 0.70, 0.70)))),
        lamp=solid(0.92, 0.92, 0.84),
        tail=solid(0.80, 0.06, 0.05),
        plate=solid(0.88, 0.86, 0.70),
        grille=solid(0.10, 0.10, 0.11),
    )


def _vehicle_nir(rng: Rng) -> Look:
    body, body_alt = two_levels(rng, REFLECTANCE, 0.35)
    cargo, cargo_alt = two_levels(rng, REFLECTANCE, 0.35)
    return make_look(
        body=Finish(body, body_alt, pick(rng, _PAINT)),
        bonnet=Finish(body, body_alt, pick(rng, ("plain", "plain", "open"))),
        roof=solid(*pick(rng, (body, body_alt))),
        cargo=Finish(cargo, cargo_alt, pick(rng, _PAINT)),
        window=solid(pick(rng, (0.05, 0.18, 0.40))),
        wheel_front=solid(0.08),
        wheel_rear=solid(0.08),
        rim=solid(pick(rng, (0.15, 0.50, 0.85))),
        bumper=solid(pick(rng, REFLECTANCE)),
        lamp=solid(0.90),
        tail=solid(pick(rng, (0.3, 0.85))),
        plate=solid(0.95),
        grille=solid(0.12),
    )


def _vehicle_tir(rng: Rng) -> Look:
    body, body_alt = two_levels(rng, (0.02, 0.14, 0.30), 0.12)
    cargo, cargo_alt = two_levels(rng, (-0.25, 0.05, 0.30), 0.25)
    parts = {
        "body": Finish(body, body_alt, pick(rng, ("plain", "half", "hem", "yoke", "blotch"))),
        "bonnet": solid(pick(rng, (0.05, 0.30, 0.60, 0.85))),
        "roof": solid(pick(rng, (-0.1, 0.10, 0.35))),
        "cargo": Finish(
            *two_levels(rng, (-0.25, 0.05, 0.30), 0.25), pick(rng, ("plain", "half", "fade", "yoke"))
        ),
        "window": solid(pick(rng, (-0.25, 0.0, 0.25))),
        "wheel_front": solid(pick(rng, (0.15, 0.45, 0.80))),
        "wheel_rear": solid(pick(rng, (0.15, 0.45, 0.80))),
        "rim": solid(pick(rng, (0.10, 0.50, 0.95))),
        "bumper": solid(pick(rng, (0.0, 0.3))),
        "lamp": solid(pick(rng, (0.1, 0.6))),
        "tail": solid(pick(rng, (0.05, 0.3))),
        "plate": solid(0.0),
        "grille": solid(pick(rng, (0.15, 0.5, 1.0))),
        "exhaust": solid(pick(rng, (0.0, 0.6, 1.2))),
    }
    return make_look(**{part: with_sun(part, finish) for part, finish in parts.items()})


VEHICLE_LOOKS: dict[str, Callable[[Rng], Look]] = {
    RGB: _vehicle_rgb,
    NIR: _vehicle_nir,
    TIR: _vehicle_tir,
}
"""How to draw the look in each modality."""
