"""The looks of the standard test: one degradation each, and simulated sites where every camera has its own.

Draws follow from the look and the sample (a site's from the site and the camera), so a set is the same on
every machine and in every order. `LOOKS` is the whole list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import look_filters as filters
import numpy as np
from look_filters import Rng

from slimreid.arrays import Pixels
from slimreid.modalities import MODALITIES, TIR, describe

CLEAN = "clean"
SITES = ("site_a", "site_b", "site_c")
FIFTH = 0.2

ActsOn = Literal["colour", "light", "all"]
"""What a look acts on: colour pictures only, also near infrared, or thermal ones too."""


@dataclass(frozen=True)
class Shot:
    """One picture of a sample, on its way into a look."""

    modality: str
    camera: str
    rng: Rng


@dataclass(frozen=True)
class Look:
    """One way in which pictures look different."""

    about: str
    apply: Callable[[Pixels, Shot], Pixels]
    acts_on: ActsOn = "all"
    shared: bool = False
    """Whether all pictures of a sample share their draws: what stands in front, and where they are cut."""


def _plain(about: str, change: Callable[..., Pixels], *values: object, acts_on: ActsOn = "all") -> Look:
    """A look without anything random."""
    return Look(about, lambda image, _: change(image, *values), acts_on)


def _noise(image: Pixels, shot: Shot) -> Pixels:
    return filters.noise(image, 20.0, shot.rng)


def _occlude(image: Pixels, shot: Shot, *, bottom: bool) -> Pixels:
    H, W = image.shape[:2]
    rectangle = filters.draw_rectangle(image.shape, FIFTH, shot.rng)
    if bottom:
        height = round(FIFTH * H)
        rectangle = (H - height, 0, height, W)
    colour = shot.rng.integers(0, 256, 3)
    return filters.occlude(image, rectangle, colour if describe(shot.modality).colour else colour[0])


def _jitter(image: Pixels, shot: Shot) -> Pixels:
    return filters.jitter_box(image, 0.15, shot.rng)


@dataclass(frozen=True)
class SiteCamera:
    """How one camera of a simulated site differs from others."""

    cast: tuple[float, float, float]
    """Gains of red, green and blue: exposure and white balance."""
    gamma: float
    contrast: float
    blur: float
    resolution: float
    """Pictures are this many times too large for what the lens shows."""
    quality: int
    """Of its JPEG files."""
    frame: float
    """By how much its detector's boxes are off."""


@cache
def site_camera(site: str, camera: str) -> SiteCamera:
    """Draw a camera's properties from its name and that of the site."""
    draw = generator(site, camera).uniform
    exposure, warmth, tint = draw(np.log(0.45), np.log(1.3)), draw(-0.3, 0.3), draw(-0.1, 0.1)
    red, green, blue = np.exp(exposure + np.array([warmth, tint, -warmth])).tolist()
    return SiteCamera(
        cast=(red, green, blue),
        gamma=float(np.exp(draw(np.log(0.65), np.log(1.5)))),
        contrast=float(draw(0.6, 1.2)),
        blur=float(draw(0.0, 1.2)),
        resolution=float(draw(1.0, 2.5)),
        quality=round(draw(15, 80)),
        frame=float(draw(0.0, 0.12)),
    )


def _site(image: Pixels, shot: Shot, *, name: str) -> Pixels:
    camera = site_camera(name, shot.camera)
    image = filters.jitter_box(image, camera.frame, shot.rng)
    image = filters.low_resolution(filters.blur(image, camera.blur), camera.resolution)
    if shot.modality != TIR:
        image = filters.gamma(image, camera.gamma)
        image = filters.contrast(image, camera.contrast)
    if describe(shot.modality).colour:
        image = filters.gains(image, camera.cast)
    return filters.jpeg(image, camera.quality)


LOOKS: Mapping[str, Look] = {
    CLEAN: _plain("as photographed", lambda image: image),
    "dark_0.5": _plain("half of the light", filters.gains, 0.5, acts_on="colour"),
    "dark_0.3": _plain("0.3 of the light", filters.gains, 0.3, acts_on="colour"),
    "gamma_0.5": _plain("gamma 0.5, pale", filters.gamma, 0.5, acts_on="light"),
    "gamma_2": _plain("gamma 2, heavy shadows", filters.gamma, 2.0, acts_on="light"),
    "warm": _plain("red × 1.35, blue × 0.6", filters.gains, (1.35, 1.0, 0.6), acts_on="colour"),
    "cold": _plain("red × 0.6, blue × 1.35", filters.gains, (0.6, 1.0, 1.35), acts_on="colour"),
    "contrast": _plain("0.35 of the contrast", filters.contrast, 0.35, acts_on="light"),
    "grey": _plain("no colour", filters.grey, acts_on="colour"),
    "blur": _plain("Gaussian blur, sigma 1.5 pixels of 64", filters.blur, 1.5),
    "motion_blur": _plain("mean over 9 pixels of 64 of a row", filters.motion_blur, 9),
    "lowres_2": _plain("half of the resolution", filters.low_resolution, 2),
    "lowres_3": _plain("a third of the resolution", filters.low_resolution, 3),
    "jpeg_20": _plain("JPEG quality 20", filters.jpeg, 20),
    "jpeg_10": _plain("JPEG quality 10", filters.jpeg, 10),
    "noise": Look("noise of 20 grey levels", _noise),
    "occluded": Look("a fifth behind a rectangle", partial(_occlude, bottom=False), shared=True),
    "no_legs": Look("the lower fifth hidden", partial(_occlude, bottom=True), shared=True),
    "crop_jitter": Look("boxes off by up to 15 %", _jitter, shared=True),
    **{name: Look("each camera its own", partial(_site, name=name), shared=True) for name in SITES},
}
DEGRADATIONS = tuple(name for name in LOOKS if name not in (CLEAN, *SITES))


def acts_on(look: Look, modality: str) -> bool:
    """Whether a look changes pictures of a modality at all."""
    return {"colour": describe(modality).colour, "light": modality != TIR, "all": True}[look.acts_on]


def show(name: str, image: Pixels, *, modality: str, camera: str, sample: str) -> Pixels:
    """A picture (H, W, 3) uint8 under the look `name`; `sample` tells pictures apart, for the draws."""
    look = LOOKS[name]
    if not acts_on(look, modality):
        return image
    rng = generator(name, sample) if look.shared else generator(name, sample, modality)
    return look.apply(image, Shot(modality, camera, rng))


def generator(*words: str) -> Rng:
    """Random numbers that follow from some words."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


@cache
def version() -> str:
    """Changes whenever a look does: a digest of what all of them make of one picture."""
    picture = generator("picture").integers(0, 256, (32, 16, 3), dtype=np.uint8)
    digest = hashlib.sha256()
    for name in LOOKS:
        for modality in MODALITIES:
            made = show(name, picture, modality=modality, camera="1", sample="1")
            digest.update(name.encode() + made.tobytes())
    return digest.hexdigest()[:12]
