"""Near-infrared and thermal images made up from a colour photograph of a person.

The recipe knows the pixels, the camera's name and a seed that is itself a hash of those and of the
run's seed; it never sees an identity or a file name. What it makes is plausible, not measured: say
"real rgb, simulated nir/tir" of every result. Equations and limits: docs/simulated.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from slimreid.arrays import Floats, Pixels
from slimreid.data.simulate.scene import Scene, blur, grid, read_scene, region_means, sigmoid
from slimreid.errors import DataError
from slimreid.modalities import NIR, TIR

# Three fixed "material tables": smooth functions of colour, sums of waves (rows: lightness and two
# chroma frequencies, phase). Their only purpose is that a material's infrared value is repeatable
# between views, yet cannot be guessed from how bright or red it looks.
_REFLECTANCE = np.array([[3.7, 4.2, 2.1, 4.9], [2.1, -3.1, 3.9, 3.4], [-5.4, 2.2, -4.3, 0.9]], np.float32)
_INSULATION = np.array([[4.6, -3.8, 3.1, 1.7], [1.2, 4.9, 2.4, 5.5], [-5.1, 1.7, 4.4, 3.6]], np.float32)
_WARMTH = np.array([[3.4, 2.8, -3.9, 0.9], [1.9, -4.5, -2.1, 3.8], [-4.2, 2.3, 4.8, 2.2]], np.float32)

# Skin temperature from the top of the head to the feet, degrees Celsius.
_SKIN_AT = (0.00, 0.05, 0.12, 0.20, 0.35, 0.50, 0.75, 0.95, 1.00)
_SKIN_HEAT = (33.0, 34.5, 34.8, 34.0, 33.5, 32.5, 31.0, 29.0, 28.0)


@dataclass(frozen=True)
class Camera:
    """How one camera's infrared sensors and surroundings differ from another's; fixed by its name."""

    gain: float
    gamma: float
    pedestal: float
    """nir signal where no light falls."""
    vignette: float
    """Loss of nir light towards the corners."""
    centre: tuple[float, float]
    """Optical centre (y, x), 0 … 1."""
    noise: float
    focus: float
    """Blur of nir in units of 1/64 of the shorter side: glass bends near infrared differently."""
    ambient: float
    """Temperature of the surroundings, degrees Celsius, like all that follow."""
    ground: float
    """How much warmer the bottom of the picture is than the top."""
    sun: float
    """How much warmer sunlit (bright) places are than dark ones."""
    tilt: float
    """How much warmer the right side is than the left."""
    netd: float
    """Noise of the thermal sensor (noise-equivalent temperature difference)."""
    stripes: float
    """Noise that whole rows and columns of the thermal sensor share."""
    window: tuple[float, float]
    """Temperatures shown as black and white."""


def sample_seed(seed: int, camera: str, rgb: Pixels) -> int:
    """Seed of one sample from the run's seed, the camera and the pixels; no name, path or identity."""
    digest = hashlib.blake2b(digest_size=8, person=b"slimreid-sample")
    for part in (str(seed), camera, "x".join(map(str, rgb.shape))):
        digest.update(part.encode() + b"\0")
    digest.update(np.ascontiguousarray(rgb).tobytes())
    return int.from_bytes(digest.digest(), "little")


def read_camera(name: str) -> Camera:
    """Draw a camera's properties from its name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"slimreid-camera").digest()
    draw = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little"))).uniform
    ambient = draw(13.0, 25.0)
    return Camera(
        gain=draw(1.10, 1.45),
        gamma=draw(0.60, 0.80),
        pedestal=draw(0.01, 0.06),
        vignette=draw(0.10, 0.45),
        centre=(draw(0.35, 0.55), draw(0.40, 0.60)),
        noise=draw(0.006, 0.018),
        focus=draw(0.30, 0.70),
        ambient=ambient,
        ground=draw(-3.0, 3.0),
        sun=draw(0.0, 4.0),
        tilt=draw(-1.5, 1.5),
        netd=draw(0.15, 0.40),
        stripes=draw(0.05, 0.20),
        window=(ambient - draw(4.0, 6.5), draw(33.5, 35.0)),
    )


def simulate_modalities(rgb: Pixels, camera: str, seed: int) -> dict[str, Pixels]:
    """Simulated `nir` and `tir`, (H, W) uint8 each, of an (H, W, 3) uint8 picture of one person.

    The same arguments give the same bytes. `seed` should come from `sample_seed`. Raises `DataError`
    for another shape or dtype.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or rgb.size == 0:
        raise DataError(f"an rgb image must be uint8 (H, W, 3) and not empty, not {rgb.dtype} {rgb.shape}")
    scene, sensor = read_scene(rgb), read_camera(camera)
    # One stream per modality, so that a change in one recipe leaves the other as it was.
    nir_seed, tir_seed = np.random.SeedSequence(seed).spawn(2)
    return {
        NIR: _near_infrared(scene, sensor, np.random.Generator(np.random.PCG64(nir_seed))),
        TIR: _thermal(scene, sensor, np.random.Generator(np.random.PCG64(tir_seed))),
    }


def _near_infrared(scene: Scene, sensor: Camera, random: np.random.Generator) -> Pixels:
    """Reflectance of materials × light × shading, seen through the camera: (H, W) uint8."""
    H, W = scene.luma.shape
    R = len(scene.colour)
    material = 0.10 + 0.35 * scene.colour[:, 0] + 0.55 * material_table(_REFLECTANCE, scene.colour)
    material += 0.05 * random.standard_normal(R, dtype=np.float32)
    reflectance = scene.paint(np.clip(material, 0.05, 0.95))
    reflectance = _mix(reflectance, 0.85, scene.vegetation)
    reflectance = _mix(reflectance, 0.58, 0.8 * scene.skin * scene.body)
    reflectance = _mix(reflectance, 0.10, scene.sky)

    # Folds, shadows and texture are geometry: they survive the change of modality, prints do less.
    regional = scene.paint(region_means(scene.shares, scene.luma))
    shading = np.clip((scene.luma + 0.08) / (regional + 0.08), 0.3, 2.2) ** 0.55
    light = (blur(scene.luma, 10.0 * scene.unit) + 0.35) ** 0.35
    light = light * (1.0 + 0.10 * _smooth_field(random, H, W, 3))

    signal = _vignette(sensor, H, W) * reflectance * shading * light
    signal = blur(signal.astype(np.float32), sensor.focus * scene.unit)
    signal = sensor.pedestal + sensor.gain * float(random.uniform(0.9, 1.1)) * signal
    spread = sensor.noise * np.sqrt(0.3 + np.maximum(signal, 0.0))
    signal = signal + spread * random.standard_normal((H, W), dtype=np.float32)
    return _quantise(np.maximum(signal, 0.0) ** sensor.gamma)


def _thermal(scene: Scene, sensor: Camera, random: np.random.Generator) -> Pixels:
    """Temperatures of body and surroundings through the camera's fixed window: (H, W) uint8."""
    H, W = scene.luma.shape
    ambient = sensor.ambient + float(random.normal(0.0, 1.0))
    around = _background_heat(scene, sensor, ambient, random)
    person = _body_heat(scene, ambient, random)
    heat = _mix(around, person, scene.body)
    heat = blur(heat.astype(np.float32), 0.9 * scene.unit)

    heat = heat + sensor.netd * random.standard_normal((H, W), dtype=np.float32)
    heat = heat + sensor.stripes * random.standard_normal((1, W), dtype=np.float32)
    heat = heat + sensor.stripes * random.standard_normal((H, 1), dtype=np.float32)
    low, high = sensor.window
    return _quantise((heat - low) / (high - low))


def _body_heat(scene: Scene, ambient: float, random: np.random.Generator) -> Floats:
    """Surface temperature if every pixel were the person: skin shows the body's heat, clothes hide it."""
    H, W = scene.luma.shape
    skin_heat = np.interp(scene.height, _SKIN_AT, _SKIN_HEAT).astype(np.float32)
    fabric = 0.20 + 0.55 * material_table(_INSULATION, scene.colour)
    cover = scene.paint(fabric) + 0.10 * _smooth_field(random, H, W, 4)
    # Loose cloth lies away from the body in folds, which show as small differences of brightness.
    folds = scene.luma - blur(scene.luma, 2.5 * scene.unit)
    cover = cover - 0.5 * folds
    head = sigmoid((0.15 - scene.height) / 0.02)
    hair = head * sigmoid((0.30 - scene.luma) / 0.05)
    bare = np.maximum(scene.skin, 0.85 * head) * (1.0 - 0.45 * hair)
    cover = np.clip(cover, 0.15, 0.90) * (1.0 - bare)
    heat: Floats = skin_heat - cover * (skin_heat - ambient)
    return heat


def _background_heat(scene: Scene, sensor: Camera, ambient: float, random: np.random.Generator) -> Floats:
    """Surface temperature if nobody were there: ground, sun, materials, plants and sky."""
    H, W = scene.luma.shape
    y, x = grid(H, W)
    R = len(scene.colour)
    offsets = 5.0 * (material_table(_WARMTH, scene.colour) - 0.5)
    offsets += 0.8 * random.standard_normal(R, dtype=np.float32)
    heat = ambient + scene.paint(offsets)
    heat = heat + sensor.ground * (y - 0.4) + sensor.tilt * (x - 0.5)
    heat = heat + sensor.sun * (blur(scene.luma, 3.0 * scene.unit) - 0.4)
    heat = heat + 0.9 * _smooth_field(random, H, W, 3)
    # Edges seen in visible light show up in heat with either sign, depending on the material.
    detail = scene.luma - blur(scene.luma, 2.0 * scene.unit)
    sign = 8.0 * (material_table(_INSULATION, scene.colour) - 0.5)
    heat = heat + scene.paint(sign) * detail
    heat = _mix(heat, ambient - 2.0 + 6.0 * detail, 0.7 * scene.vegetation)
    return _mix(heat, ambient - 12.0, scene.sky)


def material_table(waves: Floats, colour: Floats) -> Floats:
    """Fixed smooth function of colour, (R, 3) to (R,) in 0 … 1: a mean of sine waves."""
    phase = np.einsum("rc,wc->rw", colour, waves[:, :3]) + waves[:, 3]
    value: Floats = 0.5 + 0.5 * np.clip(np.sin(phase).mean(axis=1) * 1.5, -1.0, 1.0)
    return value


def _smooth_field(random: np.random.Generator, H: int, W: int, cells: int) -> Floats:
    """Random (H, W) map without structure finer than 1/`cells` of a side, unit variance everywhere."""
    y, x = grid(H, W)
    knots = np.arange(-1, cells + 2, dtype=np.float32)
    values = random.standard_normal((len(knots), len(knots)), dtype=np.float32)
    rows = np.exp(-((y * cells - knots) ** 2))  # (H, knots)
    columns = np.exp(-((x.T * cells - knots) ** 2))  # (W, knots)
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True))
    columns /= np.sqrt((columns**2).sum(axis=1, keepdims=True))
    field: Floats = np.einsum("hk,wk->hw", np.einsum("hj,jk->hk", rows, values), columns)
    return field


def _vignette(sensor: Camera, H: int, W: int) -> Floats:
    """Fall-off of the light from the camera's optical centre: (H, W)."""
    y, x = grid(H, W)
    distance = (y - sensor.centre[0]) ** 2 + (x - sensor.centre[1]) ** 2
    return (1.0 / (1.0 + sensor.vignette * 4.0 * distance)).astype(np.float32)


def _mix(base: Floats, other: Floats | float, share: Floats) -> Floats:
    mixed: Floats = base + (other - base) * share
    return mixed


def _quantise(signal: Floats) -> Pixels:
    levels: Pixels = np.clip(np.rint(signal * 255.0), 0, 255).astype(np.uint8)
    return levels
