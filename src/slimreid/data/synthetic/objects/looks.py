"""How something looks, modality by modality, and the materials that follow from it.

The looks of the modalities are drawn independently of each other: a red coat may be bright or dark in
near infrared and keep its wearer's heat or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from slimreid.data.synthetic.scenery.canvas import MATERIAL, MODALITY_CHANNELS, Coat

Rng = np.random.Generator
T = TypeVar("T")

MODALITIES: tuple[str, ...] = tuple(MODALITY_CHANNELS)


@dataclass(frozen=True)
class Finish:
    """How one part looks in one modality: its value, another one, and the pattern that mixes them."""

    base: tuple[float, ...]
    alt: tuple[float, ...]
    pattern: str = "plain"


@dataclass(frozen=True)
class Look:
    """How all parts look in one modality. Equal looks cannot be told apart in that modality."""

    parts: tuple[tuple[str, Finish], ...]


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
REFLECTANCE = (0.10, 0.28, 0.50, 0.72, 0.92)

# What the sun does to each part, the same for everybody so that it tells nothing.
_SUN = {"skin": 0.25, "hair": 0.6, "window": 0.1, "grille": 0.4}
_CLOTH_SUN = 0.45


def pick(rng: Rng, options: tuple[T, ...]) -> T:
    """One of `options`, all equally likely."""
    return options[int(rng.integers(len(options)))]


def two_levels(rng: Rng, values: tuple[float, ...], apart: float) -> tuple[tuple[float], tuple[float]]:
    """Two of `values` that differ by at least `apart`."""
    first = pick(rng, values)
    return (first,), (pick(rng, tuple(v for v in values if abs(v - first) >= apart)),)


def two_colours(rng: Rng, names: tuple[str, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One of the named colours and any other that stands out against it."""
    first = COLOURS[pick(rng, names)]
    rest = tuple(c for c in COLOURS.values() if sum(abs(a - b) for a, b in zip(c, first, strict=True)) > 0.7)
    return first, pick(rng, rest)


def solid(*value: float) -> Finish:
    """A plain finish."""
    return Finish(value, value)


def make_look(**parts: Finish) -> Look:
    """A look from its parts; what a plain part would mix in is dropped, as it never shows."""
    shown = {part: solid(*f.base) if f.pattern == "plain" else f for part, f in parts.items()}
    return Look(tuple(sorted(shown.items())))


def with_sun(part: str, finish: Finish) -> Finish:
    """A thermal finish of own heat, completed by what the sun adds."""
    sun = _SUN.get(part, _CLOTH_SUN)
    return Finish((sun, *finish.base), (sun, *finish.alt), finish.pattern)


def coats(looks: Mapping[str, Look]) -> dict[str, Coat]:
    """Join the looks of all modalities into one material per part."""
    by_modality = {modality: dict(look.parts) for modality, look in looks.items()}
    names = {part for parts in by_modality.values() for part in parts}
    result = {}
    for part in sorted(names):
        base, alt = np.zeros(MATERIAL.stop, np.float32), np.zeros(MATERIAL.stop, np.float32)
        patterns = {}
        for modality, parts in by_modality.items():
            if part in parts:
                channels = MODALITY_CHANNELS[modality]
                base[channels], alt[channels] = parts[part].base, parts[part].alt
                patterns[modality] = parts[part].pattern
        result[part] = Coat(base, alt, patterns)
    return result
