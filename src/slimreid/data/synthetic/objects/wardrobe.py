"""Drawing shapes and looks of either kind of object."""

from __future__ import annotations

from collections.abc import Callable

from slimreid.data.synthetic.objects.looks import SPECTRA, Look, Rng
from slimreid.data.synthetic.objects.person_looks import PERSON_LOOKS, PersonShape, person_shape
from slimreid.data.synthetic.objects.vehicle_looks import VEHICLE_LOOKS, VehicleShape, vehicle_shape

Shape = PersonShape | VehicleShape

_SHAPES: dict[str, Callable[[Rng], Shape]] = {"people": person_shape, "vehicles": vehicle_shape}
_LOOKS: dict[str, dict[str, Callable[[Rng], Look]]] = {"people": PERSON_LOOKS, "vehicles": VEHICLE_LOOKS}


def draw_shape(objects: str, rng: Rng) -> Shape:
    """Draw the shape of one of `objects`."""
    return _SHAPES[objects](rng)


def draw_look(objects: str, spectrum: str, rng: Rng) -> Look:
    """Draw how one of `objects` looks in one spectrum."""
    return _LOOKS[objects][spectrum](rng)


def draw_looks(objects: str, rng: Rng) -> dict[str, Look]:
    """Draw how one of `objects` looks in every spectrum, each independent of the others."""
    return {spectrum: draw_look(objects, spectrum, rng) for spectrum in SPECTRA}
