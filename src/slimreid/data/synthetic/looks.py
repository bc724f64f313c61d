"""What somebody can look like: shapes seen in every spectrum, and one look per spectrum.

The looks of the spectra are drawn independently of each other: a red coat may be bright or dark in
near infrared and keep its wearer's heat or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from slimreid.data.synthetic.canvas import MATERIAL, SPECTRUM_CHANNELS, Coat

Rng = np.random.Generator
T = TypeVar("T")

SPECTRA: tuple[str, ...] = tuple(SPECTRUM_CHANNELS)


@dataclass(frozen=True)
class Finish:
    """How one part looks in one spectrum: its value, another one, and the pattern that mixes them."""

    base: tuple[float, ...]
    alt: tuple[float, ...]
    pattern: str = "plain"


@dataclass(frozen=True)
class Look:
    """How all parts look in one spectrum. Equal looks cannot be told apart in that spectrum."""

    parts: tuple[tuple[str, Finish], ...]


@dataclass(frozen=True)
class PersonShape:
    """Body and kinds of clothes: what shows in every spectrum."""

    build: float
    shoulders: float
    legs: float
    hair: str
    sleeves: str
    lower: str
    coat: float
    bag: str
    hat: bool


@dataclass(frozen=True)
class VehicleShape:
    """Body type and proportions: what shows in every spectrum."""

    body: str
    length: float
    height: float
    wheel: float
    rack: bool


COLOURS: dict[str, tuple[float, float, float]] = {
    "black": (0.07, 0.07, 0.08),
    "charcoal": (0.20, 0.21, 0.23),
    "grey": (0.48, 0.48, 0.49),
    "white": (0.90, 0.90, 0.88),
    "navy": (0.09, 0.12, 0.30),
    "blue": (0.13, 0.31, 0.68),
    "sky": (0.47, 0.68, 0.88),
    "teal": (0.07, 0.45, 0.46),
    "green": (0.12, 0.42, 0.18),
    "lime": (0.58, 0.76, 0.22),
    "olive": (0.36, 0.36, 0.17),
    "yellow": (0.92, 0.78, 0.16),
    "orange": (0.90, 0.44, 0.08),
    "red": (0.74, 0.10, 0.10),
    "maroon": (0.38, 0.08, 0.12),
    "pink": (0.90, 0.54, 0.64),
    "purple": (0.40, 0.18, 0.50),
    "beige": (0.78, 0.68, 0.50),
    "brown": (0.36, 0.22, 0.12),
}
_LOWER = ("black", "charcoal", "navy", "blue", "grey", "beige", "olive", "brown", "white", "maroon")
_SHOES = ("black", "brown", "white", "red", "grey")
_HAIR = ((0.06, 0.05, 0.05), (0.20, 0.12, 0.07), (0.45, 0.28, 0.12), (0.74, 0.60, 0.34), (0.60, 0.60, 0.60))
_SKIN = ((0.93, 0.75, 0.64), (0.84, 0.62, 0.48), (0.66, 0.44, 0.30), (0.42, 0.27, 0.18))
_CLOTH = ("plain", "plain", "hoops", "pins", "checks", "band", "open", "yoke", "logo", "hem", "half")
_PAINT = ("plain", "plain", "plain", "band", "yoke", "logo", "half", "blotch", "hem")
_REFLECTANCE = (0.10, 0.28, 0.50, 0.72, 0.92)

# What the sun does to each part, the same for everybody so that it tells nothing.
_SUN = {"skin": 0.25, "hair": 0.6, "window": 0.1, "grille": 0.4}
_CLOTH_SUN = 0.45


def pick(rng: Rng, options: tuple[T, ...]) -> T:
    """One of `options`, all equally likely."""
    return options[int(rng.integers(len(options)))]


def _two(rng: Rng, values: tuple[float, ...], apart: float) -> tuple[tuple[float], tuple[float]]:
    """Two of `values` that differ by at least `apart`."""
    first = pick(rng, values)
    return (first,), (pick(rng, tuple(v for v in values if abs(v - first) >= apart)),)


def _colours(rng: Rng, names: tuple[str, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    first = COLOURS[pick(rng, names)]
    rest = tuple(c for c in COLOURS.values() if sum(abs(a - b) for a, b in zip(c, first, strict=True)) > 0.7)
    return first, pick(rng, rest)


def _solid(*value: float) -> Finish:
    return Finish(value, value)


def _look(**parts: Finish) -> Look:
    return Look(tuple(sorted(parts.items())))


def person_shape(rng: Rng) -> PersonShape:
    """Draw a body and its kinds of clothes."""
    return PersonShape(
        build=pick(rng, (0.82, 1.0, 1.22)),
        shoulders=pick(rng, (0.90, 1.08)),
        legs=pick(rng, (0.95, 1.04)),
        hair=pick(rng, ("short", "long", "bun", "bald")),
        sleeves=pick(rng, ("long", "long", "short")),
        lower=pick(rng, ("trousers", "trousers", "shorts", "skirt", "long skirt")),
        coat=pick(rng, (0.0, 0.0, 0.10)),
        bag=pick(rng, ("none", "none", "backpack", "shoulder", "hand")),
        hat=bool(rng.random() < 0.25),
    )


def _person_rgb(rng: Rng) -> Look:
    upper, upper_alt = _colours(rng, tuple(COLOURS))
    lower, lower_alt = _colours(rng, _LOWER)
    pattern = pick(rng, _CLOTH)
    return _look(
        skin=_solid(*pick(rng, _SKIN)),
        hair=_solid(*pick(rng, _HAIR)),
        upper=Finish(upper, upper_alt, pattern),
        sleeve=Finish(upper, upper_alt, pattern if pattern in ("hoops", "pins", "checks") else "plain"),
        lower=Finish(lower, lower_alt, pick(rng, ("plain", "plain", "plain", "checks", "pins"))),
        shoes=_solid(*COLOURS[pick(rng, _SHOES)]),
        bag=_solid(*COLOURS[pick(rng, tuple(COLOURS))]),
        hat=_solid(*COLOURS[pick(rng, tuple(COLOURS))]),
    )


def _person_nir(rng: Rng) -> Look:
    upper, upper_alt = _two(rng, _REFLECTANCE, 0.35)
    lower, lower_alt = _two(rng, _REFLECTANCE, 0.35)
    pattern = pick(rng, _CLOTH)
    return _look(
        skin=_solid(0.66),
        hair=_solid(pick(rng, (0.22, 0.42, 0.60))),
        upper=Finish(upper, upper_alt, pattern),
        sleeve=Finish(upper, upper_alt, pattern if pattern in ("hoops", "pins", "checks") else "plain"),
        lower=Finish(lower, lower_alt, pick(rng, ("plain", "plain", "hem", "yoke", "pins"))),
        shoes=_solid(pick(rng, _REFLECTANCE)),
        bag=_solid(pick(rng, _REFLECTANCE)),
        hat=_solid(pick(rng, _REFLECTANCE)),
    )


def _person_tir(rng: Rng) -> Look:
    levels = (0.10, 0.28, 0.46, 0.66)
    warm_cloth = ("plain", "plain", "yoke", "hem", "open", "half", "fade", "logo", "blotch")
    upper, upper_alt = _two(rng, levels, 0.3)
    lower, lower_alt = _two(rng, levels, 0.3)
    parts = {
        "skin": _solid(pick(rng, (0.84, 1.0))),
        "hair": _solid(pick(rng, (0.30, 0.50, 0.70))),
        "upper": Finish(upper, upper_alt, pick(rng, warm_cloth)),
        "sleeve": _solid(pick(rng, levels)),
        "lower": Finish(lower, lower_alt, pick(rng, ("plain", "yoke", "hem", "fade"))),
        "shoes": _solid(pick(rng, (0.05, 0.35, 0.7))),
        "bag": _solid(pick(rng, (0.0, 0.3, 0.8))),
        "hat": _solid(pick(rng, (0.05, 0.4))),
    }
    return _look(**{part: _with_sun(part, finish) for part, finish in parts.items()})


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
    body, body_alt = _colours(rng, tuple(COLOURS))
    cargo, cargo_alt = _colours(rng, tuple(COLOURS))
    return _look(
        body=Finish(body, body_alt, pick(rng, _PAINT)),
        bonnet=_solid(*body),
        roof=_solid(*pick(rng, (body, body, body_alt))),
        cargo=Finish(cargo, cargo_alt, pick(rng, _PAINT)),
        window=_solid(0.10, 0.12, 0.14),
        wheel_front=_solid(0.06, 0.06, 0.06),
        wheel_rear=_solid(0.06, 0.06, 0.06),
        rim=_solid(*pick(rng, ((0.75, 0.75, 0.77), (0.12, 0.12, 0.13), (0.62, 0.50, 0.22)))),
        bumper=_solid(*pick(rng, (body, COLOURS["charcoal"], (0.70, 0.70, 0.70)))),
        lamp=_solid(0.92, 0.92, 0.84),
        tail=_solid(0.80, 0.06, 0.05),
        plate=_solid(0.88, 0.86, 0.70),
        grille=_solid(0.10, 0.10, 0.11),
    )


def _vehicle_nir(rng: Rng) -> Look:
    body, body_alt = _two(rng, _REFLECTANCE, 0.35)
    cargo, cargo_alt = _two(rng, _REFLECTANCE, 0.35)
    return _look(
        body=Finish(body, body_alt, pick(rng, _PAINT)),
        bonnet=Finish(body, body_alt, pick(rng, ("plain", "plain", "open"))),
        roof=_solid(*pick(rng, (body, body_alt))),
        cargo=Finish(cargo, cargo_alt, pick(rng, _PAINT)),
        window=_solid(pick(rng, (0.05, 0.18, 0.40))),
        wheel_front=_solid(0.08),
        wheel_rear=_solid(0.08),
        rim=_solid(pick(rng, (0.15, 0.50, 0.85))),
        bumper=_solid(pick(rng, _REFLECTANCE)),
        lamp=_solid(0.90),
        tail=_solid(pick(rng, (0.3, 0.85))),
        plate=_solid(0.95),
        grille=_solid(0.12),
    )


def _vehicle_tir(rng: Rng) -> Look:
    body, body_alt = _two(rng, (0.02, 0.14, 0.30), 0.12)
    parts = {
        "body": Finish(body, body_alt, pick(rng, ("plain", "half", "hem", "yoke", "blotch"))),
        "bonnet": _solid(pick(rng, (0.05, 0.30, 0.60, 0.85))),
        "roof": _solid(pick(rng, (-0.1, 0.10, 0.35))),
        "cargo": Finish(*_two(rng, (-0.25, 0.05, 0.30), 0.25), pick(rng, ("plain", "half", "fade", "yoke"))),
        "window": _solid(pick(rng, (-0.25, 0.0, 0.25))),
        "wheel_front": _solid(pick(rng, (0.15, 0.45, 0.80))),
        "wheel_rear": _solid(pick(rng, (0.15, 0.45, 0.80))),
        "rim": _solid(pick(rng, (0.10, 0.50, 0.95))),
        "bumper": _solid(pick(rng, (0.0, 0.3))),
        "lamp": _solid(pick(rng, (0.1, 0.6))),
        "tail": _solid(pick(rng, (0.05, 0.3))),
        "plate": _solid(0.0),
        "grille": _solid(pick(rng, (0.15, 0.5, 1.0))),
        "exhaust": _solid(pick(rng, (0.0, 0.6, 1.2))),
    }
    return _look(**{part: _with_sun(part, finish) for part, finish in parts.items()})


def _with_sun(part: str, finish: Finish) -> Finish:
    sun = _SUN.get(part, _CLOTH_SUN)
    return Finish((sun, *finish.base), (sun, *finish.alt), finish.pattern)


SHAPES: dict[str, Callable[[Rng], PersonShape | VehicleShape]] = {
    "people": person_shape,
    "vehicles": vehicle_shape,
}
LOOKS: dict[str, dict[str, Callable[[Rng], Look]]] = {
    "people": {"rgb": _person_rgb, "nir": _person_nir, "tir": _person_tir},
    "vehicles": {"rgb": _vehicle_rgb, "nir": _vehicle_nir, "tir": _vehicle_tir},
}


def draw_look(objects: str, spectrum: str, rng: Rng) -> Look:
    """Draw how one of `objects` looks in one spectrum."""
    return LOOKS[objects][spectrum](rng)


def coats(looks: Mapping[str, Look]) -> dict[str, Coat]:
    """Join the looks of all spectra into one material per part."""
    by_spectrum = {spectrum: dict(look.parts) for spectrum, look in looks.items()}
    names = {part for parts in by_spectrum.values() for part in parts}
    result = {}
    for part in sorted(names):
        base, alt = np.zeros(MATERIAL.stop, np.float32), np.zeros(MATERIAL.stop, np.float32)
        patterns = {}
        for spectrum, parts in by_spectrum.items():
            if part in parts:
                channels = SPECTRUM_CHANNELS[spectrum]
                base[channels], alt[channels] = parts[part].base, parts[part].alt
                patterns[spectrum] = parts[part].pattern
        result[part] = Coat(base, alt, patterns)
    return result
