"""Time of day: what light there is, how warm the air and how strong the sun."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Rng = np.random.Generator


@dataclass(frozen=True)
class Conditions:
    """Weather of one sample, the same for all spectra."""

    time: str
    """`day`, `dusk`, `noon` or `night`."""
    daylight: float
    """Visible light, 1 on a bright day."""
    tint: tuple[float, float, float]
    """Colour of that light."""
    sun: float
    """Direct sun, 0 … 1: hard shadows and warm walls."""
    air: float
    """Degrees Celsius."""
    side: float
    """Where the light comes from: −1 left … 1 right."""
    lamp: float
    """Strength of a street lamp, 0 by day."""


_SHARES = {"day": (1.0, 0.10), "dusk": (0.0, 0.20), "noon": (0.0, 0.32), "night": (0.0, 0.38)}
"""How often each time of day occurs at strength 0 and 1."""


def time_shares(strength: float) -> dict[str, float]:
    """Probability of each time of day; they sum to 1."""
    return {time: (1 - strength) * easy + strength * hard for time, (easy, hard) in _SHARES.items()}


def draw_conditions(rng: Rng, strength: float) -> Conditions:
    """Draw the time of day and its weather."""
    shares = time_shares(strength)
    time = str(rng.choice(list(shares), p=list(shares.values())))
    side = float(rng.uniform(-1, 1)) * (0.3 + 0.7 * strength)
    low, mean, high = rng.uniform(size=3)
    if time == "night":
        dark = 0.02 + 0.16 * float(low) ** 1.5
        lamp = 0.30 * float(high) if mean < 0.6 else 0.0
        return Conditions(time, dark, (1.0, 0.86, 0.66), 0.0, 3 + 9 * float(high), side, lamp)
    if time == "dusk":
        light = 0.3 + 0.25 * float(low)
        return Conditions(time, light, (1.12, 0.96, 0.80), 0.05, 10 + 9 * float(high), side, 0.0)
    if time == "noon":
        light, sun = 1.0 + 0.25 * float(low), 0.5 + 0.5 * float(mean)
        return Conditions(time, light, (1.03, 1.0, 0.95), sun, 30 + 5 * float(high), side, 0.0)
    spread = 0.3 + 0.7 * strength
    light, air = 0.95 + 0.15 * spread * (2 * float(low) - 1), 16 + 6 * spread * (2 * float(high) - 1)
    return Conditions(time, light, (1.0, 1.0, 1.0), 0.2 * float(mean), air, side, 0.0)
