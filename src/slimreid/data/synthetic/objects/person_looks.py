"""What people can look like: body and kinds of clothes, and their look in each modality."""

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

_LOWER = ("black", "charcoal", "navy", "blue", "grey", "beige", "olive", "brown", "white", "maroon")
_SHOES = ("black", "brown", "white", "red", "grey")
_HAIR = ((0.06, 0.05, 0.05), (0.20, 0.12, 0.07), (0.45, 0.28, 0.12), (0.74, 0.60, 0.34), (0.60, 0.60, 0.60))
_SKIN = ((0.93, 0.75, 0.64), (0.84, 0.62, 0.48), (0.66, 0.44, 0.30), (0.42, 0.27, 0.18))
_CLOTH = ("plain", "plain", "hoops", "pins", "checks", "band", "open", "yoke", "logo", "hem", "half")


@dataclass(frozen=True)
class PersonShape:
    """Body and kinds of clothes: what shows in every modality."""

    build: float
    shoulders: float
    legs: float
    hair: str
    sleeves: str
    lower: str
    coat: float
    bag: str
    hat: bool


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
    upper, upper_alt = two_colours(rng, tuple(COLOURS))
    lower, lower_alt = two_colours(rng, _LOWER)
    pattern = pick(rng, _CLOTH)
    return make_look(
        skin=solid(*pick(rng, _SKIN)),
        hair=solid(*pick(rng, _HAIR)),
        upper=Finish(upper, upper_alt, pattern),
        sleeve=Finish(upper, upper_alt, pattern if pattern in ("hoops", "pins", "checks") else "plain"),
        lower=Finish(lower, lower_alt, pick(rng, ("plain", "plain", "plain", "checks", "pins"))),
        shoes=solid(*COLOURS[pick(rng, _SHOES)]),
        bag=solid(*COLOURS[pick(rng, tuple(COLOURS))]),
        hat=solid(*COLOURS[pick(rng, tuple(COLOURS))]),
    )


def _person_nir(rng: Rng) -> Look:
    upper, upper_alt = two_levels(rng, REFLECTANCE, 0.35)
    lower, lower_alt = two_levels(rng, REFLECTANCE, 0.35)
    pattern = pick(rng, _CLOTH)
    return make_look(
        skin=solid(0.66),
        hair=solid(pick(rng, (0.22, 0.42, 0.60))),
        upper=Finish(upper, upper_alt, pattern),
        sleeve=Finish(upper, upper_alt, pattern if pattern in ("hoops", "pins", "checks") else "plain"),
        lower=Finish(lower, lower_alt, pick(rng, ("plain", "plain", "hem", "yoke", "pins"))),
        shoes=solid(pick(rng, REFLECTANCE)),
        bag=solid(pick(rng, REFLECTANCE)),
        hat=solid(pick(rng, REFLECTANCE)),
    )


def _person_tir(rng: Rng) -> Look:
    levels = (0.10, 0.28, 0.46, 0.66)
    warm_cloth = ("plain", "plain", "yoke", "hem", "open", "half", "fade", "logo", "blotch")
    upper, upper_alt = two_levels(rng, levels, 0.3)
    lower, lower_alt = two_levels(rng, levels, 0.3)
    parts = {
        "skin": solid(pick(rng, (0.84, 1.0))),
        "hair": solid(pick(rng, (0.30, 0.50, 0.70))),
        "upper": Finish(upper, upper_alt, pick(rng, warm_cloth)),
        "sleeve": solid(pick(rng, levels)),
        "lower": Finish(lower, lower_alt, pick(rng, ("plain", "yoke", "hem", "fade"))),
        "shoes": solid(pick(rng, (0.05, 0.35, 0.7))),
        "bag": solid(pick(rng, (0.0, 0.3, 0.8))),
        "hat": solid(pick(rng, (0.05, 0.4))),
    }
    return make_look(**{part: with_sun(part, finish) for part, finish in parts.items()})


PERSON_LOOKS: dict[str, Callable[[Rng], Look]] = {RGB: _person_rgb, NIR: _person_nir, TIR: _person_tir}
"""How to draw the look in each modality."""
