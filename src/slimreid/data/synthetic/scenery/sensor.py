"""From materials to pictures: the light of a time of day, and what each sensor makes of a canvas in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from slimreid.arrays import Pixels
from slimreid.data.synthetic.scenery.canvas import HEAT, NEAR, OBJECT, SUN, VISIBLE, Array
from slimreid.data.synthetic.scenery.scene import SUPERSAMPLE, Camera
from slimreid.modalities import NIR, RGB, TIR

Rng = np.random.Generator


_SHARES = {"day": (1.0, 0.10), "dusk": (0.0, 0.20), "noon": (0.0, 0.32), "night": (0.0, 0.38)}
"""How often each time of day occurs at strength 0 and 1."""
CORE = {"people": 34.0, "vehicles": 62.0}
"""Degrees Celsius of a material whose own heat is 1."""
_SUNSHINE = 15.0  # degrees by which the noon sun warms what takes up all of it


@dataclass(frozen=True)
class Conditions:
    """Weather of one sample, the same for all modalities."""

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


def shrink(canvas: Array) -> Array:
    """Average every 2×2 pixels: (2H, 2W, C) → (H, W, C)."""
    rows = canvas[0::SUPERSAMPLE] + canvas[1::SUPERSAMPLE]
    small: Array = (rows[:, 0::SUPERSAMPLE] + rows[:, 1::SUPERSAMPLE]) * np.float32(0.25)
    return small


def _grid(height: int, width: int) -> tuple[Array, Array]:
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    return y, x


def expose_rgb(canvas: Array, camera: Camera, now: Conditions, strength: float, rng: Rng) -> Array:
    """Visible picture (H, W, 3) in 0 … 1; `strength` is that of blur and noise."""
    H, W, _ = canvas.shape
    y, x = _grid(H, W)
    light: Array = now.daylight * (1 + 0.22 * now.side * x + 0.05 * (1 - y))
    if now.lamp:
        light = light + now.lamp * np.exp(-2.5 * ((x - now.side) ** 2 + (0.6 * y + 0.5) ** 2))
    gain = np.asarray(now.tint, np.float32) * np.asarray(camera.colour, np.float32)
    picture: Array = canvas[..., VISIBLE] * light[..., None] * gain
    # Sensors raise their gain in the dark: a little more light, much more noise.
    noise = 0.006 + 0.016 * strength + (0.03 * strength if now.daylight < 0.25 else 0.0)
    picture = np.clip(picture, 0, None) ** camera.gamma
    if now.sun > 0.4:  # haze and glare take away contrast
        picture = picture + 0.12 * strength * now.sun * (0.75 - picture)
    picture = ndimage.gaussian_filter(picture, (camera.blur, camera.blur, 0))
    return picture + _noise((H, W, 3), noise, rng)


def expose_nir(canvas: Array, camera: Camera, now: Conditions, strength: float, rng: Rng) -> Array:
    """Near infrared picture (H, W) in 0 … 1; at night an illuminator beside the camera gives the light."""
    H, W, _ = canvas.shape
    y, x = _grid(H, W)
    light: Array
    if now.time == "night":
        # The beam fades towards its rim and with distance, so the background stays dark.
        near = 0.42 + 0.16 * y + 0.42 * canvas[..., OBJECT]
        light = 1.05 * near * np.exp(-0.7 * (x - 0.3 * now.side) ** 2 - 0.35 * y**2)
    else:
        light = (0.45 + 0.5 * now.daylight) * (1 + 0.18 * now.side * x)
    picture: Array = np.clip(canvas[..., NEAR] * light * camera.near_gain, 0, None)
    picture = ndimage.gaussian_filter(0.04 + 0.92 * picture, camera.blur + 0.25)
    return picture + _noise((H, W), 0.008 + 0.02 * strength, rng)


def heat_map(canvas: Array, now: Conditions, core: float) -> Array:
    """Temperature (H, W) in degrees Celsius."""
    degrees: Array = now.air + now.sun * _SUNSHINE * canvas[..., SUN] + canvas[..., HEAT] * (core - now.air)
    return degrees


def expose_tir(
    canvas: Array, camera: Camera, now: Conditions, strength: float, rng: Rng, core: float = CORE["people"]
) -> Array:
    """Thermal picture (H, W) in 0 … 1, warm is bright.

    The range follows the scene as thermal cameras do, but never below a floor, so that contrast
    vanishes when everything is equally warm.
    """
    H, W, _ = canvas.shape
    degrees = heat_map(canvas, now, core)
    middle = 0.5 * float(np.median(degrees)) + 0.5 * (now.air + 0.25 * (core - now.air))
    span = max(4.2 * float(degrees.std()), 0.62 * (core - 4.0)) / camera.heat_gain
    picture: Array = ndimage.gaussian_filter(
        0.40 + camera.heat_offset + (degrees - middle) / span, 0.55 + camera.blur
    )
    fixed: Array = camera.columns * np.float32(0.004 + 0.012 * strength)
    return picture + fixed + _noise((H, W), 0.008 + 0.018 * strength, rng)


def _noise(shape: tuple[int, ...], sigma: float, rng: Rng) -> Array:
    noise: Array = rng.standard_normal(shape, dtype=np.float32) * np.float32(sigma)
    return noise


SENSORS: dict[str, Callable[..., Array]] = {RGB: expose_rgb, NIR: expose_nir, TIR: expose_tir}


def to_bytes(picture: Array) -> Pixels:
    """A picture in 0 … 1 as 8-bit numbers."""
    numbers: Pixels = np.clip(picture * 255 + 0.5, 0, 255).astype(np.uint8)
    return numbers
