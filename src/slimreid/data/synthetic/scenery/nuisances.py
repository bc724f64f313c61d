"""What a good model must ignore, and how strong it is at each difficulty."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Nuisances:
    """Strengths, 0 = off … 1 = as strong as it gets."""

    background: float
    """Contrast of the backgrounds, and how much of the camera's view is used."""
    times: float
    """How often it is not simply day."""
    pose: float
    """Spread of view, walk, scale and place."""
    strangers: float
    """How often something distracting stands behind the object."""
    occlusion: float
    """How often something stands in front of it."""
    camera: float
    """Differences between the cameras in colour, contrast and gain."""
    sensor: float
    """Blur and noise."""
    misalignment: float
    """Shift between the spectra."""


# At medium difficulty most samples are to be usable in most spectra, so what can ruin a sample
# altogether grows late, and what only disturbs grows evenly.
_POWERS = {
    "background": 2.3,
    "times": 1.6,
    "pose": 1.6,
    "strangers": 1.0,
    "occlusion": 1.0,
    "camera": 2.0,
    "sensor": 1.0,
    "misalignment": 1.0,
}


def nuisances(difficulty: float) -> Nuisances:
    """Strength of each nuisance at a difficulty in [0, 1]: all off at 0, all full at 1."""
    return Nuisances(**{name: difficulty**power for name, power in _POWERS.items()})
