"""Who somebody is: identities that collide in every single modality and differ in the combination.

Identities come in families. A family shares one shape and owns two looks per modality, A and B; its
members are the four combinations with an even number of Bs:

    rgb nir tir
     A   A   A
     A   B   B
     B   A   B
     B   B   A

So each modality alone leaves two candidates, and any two of them settle it. Shapes and looks come
from small stocks, so that families share them as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slimreid.config.synthetic import SynthOptions
from slimreid.data.synthetic.objects.looks import MODALITIES, Look, Rng
from slimreid.data.synthetic.objects.person_looks import PERSON_LOOKS, PersonShape, person_shape
from slimreid.data.synthetic.objects.vehicle_looks import VEHICLE_LOOKS, VehicleShape, vehicle_shape

Shape = PersonShape | VehicleShape

_SHAPES: dict[str, Callable[[Rng], Shape]] = {"people": person_shape, "vehicles": vehicle_shape}
_LOOKS: dict[str, dict[str, Callable[[Rng], Look]]] = {"people": PERSON_LOOKS, "vehicles": VEHICLE_LOOKS}


FAMILY = 4
_PATIENCE = 100
_LARGEST = {"upper", "body"}
_SHOWN_BY_ALL = ("upper", "sleeve", "lower", "hair", "body", "bonnet", "roof", "rim", "window", "wheel_front")
_STREAM = 1  # keeps the random numbers of identities apart from those of cameras and samples


def draw_shape(objects: str, rng: Rng) -> Shape:
    """Draw the shape of one of `objects`."""
    return _SHAPES[objects](rng)


def draw_look(objects: str, modality: str, rng: Rng) -> Look:
    """Draw how one of `objects` looks in one modality."""
    return _LOOKS[objects][modality](rng)


def draw_looks(objects: str, rng: Rng) -> dict[str, Look]:
    """Draw how one of `objects` looks in every modality, each independent of the others."""
    return {modality: draw_look(objects, modality, rng) for modality in MODALITIES}


@dataclass(frozen=True)
class Identity:
    """One person or vehicle."""

    number: int
    """As in the file names, from 1."""
    split: str
    """`train` or `test`."""
    family: int
    shape: Shape
    looks: Mapping[str, Look]
    """How it looks in each modality."""

    def seen_in(self, modalities: Sequence[str]) -> tuple[object, ...]:
        """Everything that the given modalities can tell about this identity."""
        return (self.shape, *(self.looks[modality] for modality in modalities))


def family_sizes(count: int) -> list[int]:
    """Split `count` into families of four; a remainder enlarges the first family."""
    whole, rest = divmod(count, FAMILY)
    return [FAMILY + rest] + [FAMILY] * (whole - 1) if whole else [rest]


def family_members(size: int) -> list[tuple[int, ...]]:
    """Which look (0 or 1) each member has in each modality: even combinations first, then odd ones."""
    combinations = itertools.product((0, 1), repeat=len(MODALITIES))
    return sorted(combinations, key=lambda looks: sum(looks) % 2)[:size]


def _stock(objects: str, modality: str, count: int, rng: Rng) -> list[Look]:
    """`count` looks, each visibly unlike the others as long as such looks can be found."""
    looks: list[Look] = []
    for _ in range(count):
        for _ in range(_PATIENCE):
            look = draw_look(objects, modality, rng)
            if all(_apart(look, other) for other in looks):
                break
        looks.append(look)
    return looks


def _apart(one: Look, other: Look) -> bool:
    """Whether two looks differ in the largest part and in another one that everybody shows."""
    parts, others = dict(one.parts), dict(other.parts)
    different = {part for part in _SHOWN_BY_ALL if part in parts and parts[part] != others[part]}
    return bool(different & _LARGEST) and len(different) >= 2


def _draw_split(options: SynthOptions, split: str, first: int, count: int) -> list[Identity]:
    rng = np.random.default_rng([options.seed, _STREAM, first])
    sizes = family_sizes(count)
    shapes = [draw_shape(options.objects, rng) for _ in range(max(2, (2 * len(sizes) + 2) // 3))]
    stock = {s: _stock(options.objects, s, max(4, (5 * len(sizes)) // 4), rng) for s in MODALITIES}
    identities: list[Identity] = []
    known: set[tuple[object, ...]] = set()
    for family, size in enumerate(sizes):
        while True:
            shape = shapes[int(rng.integers(len(shapes)))]
            pair = {s: rng.choice(len(stock[s]), 2, replace=False) for s in MODALITIES}
            members = [
                Identity(
                    number=first + len(identities) + k,
                    split=split,
                    family=family,
                    shape=shape,
                    looks={s: stock[s][pair[s][which]] for s, which in zip(MODALITIES, member, strict=True)},
                )
                for k, member in enumerate(family_members(size))
            ]
            seen = {member.seen_in(MODALITIES) for member in members}
            if not seen & known:
                break
        known |= seen
        identities += members
    return identities


def draw_identities(options: SynthOptions) -> list[Identity]:
    """All identities of a world: first those for training, then those for the test."""
    train = options.identities - options.test_identities
    return [
        *_draw_split(options, "train", 1, train),
        *_draw_split(options, "test", train + 1, options.test_identities),
    ]
