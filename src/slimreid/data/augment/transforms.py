"""Augmentation of aligned multi-modal samples.

One geometry (flip, crop) is drawn per sample and shared by all its modalities, because guidance across
modalities needs their patches to match. Everything random comes from the generator that is passed in, so a
sample looks the same whichever worker loads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from slimreid.arrays import Pixels
from slimreid.config import TransformConfig
from slimreid.data.augment.degrade import (
    BRIGHTNESS,
    cut_out,
    degrade,
    draw_frame,
    draw_occluder,
    occlude,
    reframe,
    resized,
)
from slimreid.data.sample_reader import normalise
from slimreid.modalities import describe

Rng = np.random.Generator
ERASE_AREA, ERASE_ASPECT = (0.02, 1 / 3), (0.3, 3.3)
"""Smallest and largest share of the image that is erased, and height-to-width ratio of the rectangle."""


@dataclass(frozen=True)
class Geometry:
    """Where the crop starts in the padded image, and whether it is mirrored."""

    top: int
    left: int
    flip: bool


@dataclass(frozen=True)
class Rectangle:
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def draw_geometry(config: TransformConfig, rng: Rng) -> Geometry:
    """Draw flip and crop."""
    flip = rng.random() < config.flip
    top, left = rng.integers(0, 2 * config.pad + 1, size=2) if config.pad else (0, 0)
    return Geometry(int(top), int(left), bool(flip))


def draw_rectangle(config: TransformConfig, rng: Rng) -> Rectangle | None:
    """Draw what to erase, or None; up to ten tries to find a rectangle that fits."""
    if rng.random() >= config.erase:
        return None
    H, W = config.size
    for _ in range(10):
        area = rng.uniform(*ERASE_AREA) * H * W
        aspect = math.exp(rng.uniform(math.log(ERASE_ASPECT[0]), math.log(ERASE_ASPECT[1])))
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < height < H and 0 < width < W:
            top, left = rng.integers(0, H - height + 1), rng.integers(0, W - width + 1)
            return Rectangle(int(top), int(left), height, width)
    return None


def jitter_colour(image: Tensor, strength: float, rng: Rng) -> Tensor:
    """Change brightness, contrast and saturation of a (3, H, W) uint8 image by up to ±`strength`."""
    brightness, contrast, saturation = rng.uniform(1 - strength, 1 + strength, size=3).astype(np.float32)
    x = image.float() * float(brightness)
    grey = (x * x.new_tensor(BRIGHTNESS)[:, None, None]).sum(0, keepdim=True)
    x = (x - grey) * float(saturation) + grey  # saturation leaves the grey value as it is
    mean = grey.mean()
    return ((x - mean) * float(contrast) + mean).round_().clamp_(0, 255).to(torch.uint8)


def fast_resize(image: Pixels, size: tuple[int, int], mode: str) -> Pixels:
    """`slimreid.data.images.resize.resize` by torch: the same bytes, faster."""
    x = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)  # channels stay last in memory
    return resized(x, size, mode).numpy()


def apply_geometry(image: Tensor, geometry: Geometry, pad: int) -> Tensor:
    """Pad (3, H, W) uint8 with black, crop to the original size, mirror."""
    if pad:
        _, H, W = image.shape
        image = cut_out(image, geometry.top - pad, geometry.left - pad, (H, W))
    return image.flip(-1) if geometry.flip else image


class TrainTransform:
    """Resized uint8 images of one sample -> augmented (3, H, W) float tensors."""

    mode = "bicubic"

    def __init__(self, config: TransformConfig) -> None:
        self.config = config

    def __call__(self, images: Mapping[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """Augment; the draws are made in a fixed order."""
        config = self.config
        geometry = draw_geometry(config, rng)
        frame, occluder = draw_frame(config.degrade, rng), draw_occluder(config.degrade, rng)
        result = {}
        for name, image in images.items():
            rectangle = draw_rectangle(config, rng)
            if config.colour_jitter and describe(name).colour:
                image = jitter_colour(image, config.colour_jitter, rng)
            if config.degrade.any:
                image = occlude(reframe(image, frame), occluder, describe(name).colour)
                image = degrade(image, config.degrade, rng, describe(name).colour)
            placed = apply_geometry(image, geometry, config.pad)
            x = torch.from_numpy(normalise(placed.numpy(), config.mean, config.std))
            if rectangle is not None:
                r = rectangle
                noise = rng.standard_normal((3, r.height, r.width), dtype=np.float32)
                x[:, r.top : r.top + r.height, r.left : r.left + r.width] = torch.from_numpy(noise)
            result[name] = x
        return result


class TestTransform:
    """Resized uint8 images of one sample -> (3, H, W) float tensors; nothing is random."""

    __test__ = False  # not a test class

    def __init__(self, config: TransformConfig) -> None:
        self.config = config
        self.mode = config.test_resize

    def __call__(self, images: Mapping[str, Tensor], rng: Rng | None = None) -> dict[str, Tensor]:
        """Normalise by mean and std; `rng` is there because training transforms take one."""
        mean, std = self.config.mean, self.config.std
        return {name: torch.from_numpy(normalise(x.numpy(), mean, std)) for name, x in images.items()}
