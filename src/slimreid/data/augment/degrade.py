"""Training images made worse, as other cameras, lenses, weathers and recorders make them.

Every function takes and gives a (3, H, W) uint8 image. What is drawn comes from the generator that is
passed in; a probability of 0 draws nothing, so that other options give the same samples with or without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.config import DegradeConfig

Rng = np.random.Generator
BRIGHTNESS = (0.299, 0.587, 0.114)
"""What red, green and blue count in the brightness of an image; they add up to 1."""


@dataclass(frozen=True)
class Frame:
    """What a detector might have cut out: size and corner as shares of the image; it may reach beyond it."""

    height: float
    width: float
    top: float
    left: float


def draw_frame(config: DegradeConfig, rng: Rng) -> Frame | None:
    """Draw another framing, or None."""
    if not _drawn(config.zoom, rng):
        return None
    height, width = rng.uniform(0.75, 1.15, size=2)
    top, left = rng.uniform(size=2) * (1 - np.array([height, width]))
    return Frame(float(height), float(width), float(top), float(left))


def reframe(image: Tensor, frame: Frame | None) -> Tensor:
    """The part of an image that `frame` shows, at the size of the image; black outside it."""
    if frame is None:
        return image
    _, H, W = image.shape
    h, w = max(1, round(frame.height * H)), max(1, round(frame.width * W))
    return resized(cut_out(image, round(frame.top * H), round(frame.left * W), (h, w)), (H, W))


@dataclass(frozen=True)
class Occluder:
    """Something in front: a rectangle, and what is seen there; all places are shares of the image."""

    height: float
    width: float
    top: float
    left: float
    colour: tuple[int, int, int] | None
    """What it looks like; None = as the part of the image at `source`."""
    source: tuple[float, float]


def draw_occluder(config: DegradeConfig, rng: Rng) -> Occluder | None:
    """Draw what hides a part of the sample, or None."""
    if not _drawn(config.occlusion, rng):
        return None
    area = rng.uniform(0.05, 0.4)
    height = math.exp(rng.uniform(math.log(area), 0.0))  # between the whole width and the whole height
    width = area / height
    top, left, down, right = rng.uniform(size=4) * (1 - np.array([height, width] * 2))
    red, green, blue = (int(value) for value in rng.integers(0, 256, size=3))
    colour = (red, green, blue) if rng.random() < 0.5 else None
    return Occluder(height, width, float(top), float(left), colour, (float(down), float(right)))


def occlude(image: Tensor, occluder: Occluder | None, colour: bool) -> Tensor:
    """Hide a part of an image; without `colour` what hides it is grey."""
    if occluder is None:
        return image
    _, H, W = image.shape
    h, w = max(1, round(occluder.height * H)), max(1, round(occluder.width * W))
    y, x = min(round(occluder.top * H), H - h), min(round(occluder.left * W), W - w)
    if occluder.colour is None:
        down, right = min(round(occluder.source[0] * H), H - h), min(round(occluder.source[1] * W), W - w)
        part = image[:, down : down + h, right : right + w]
    else:
        tone = torch.tensor(occluder.colour, dtype=torch.uint8)[:, None, None]
        part = tone if colour else to_grey(tone)
    hidden = image.clone()
    hidden[:, y : y + h, x : x + w] = part
    return hidden


def degrade(image: Tensor, config: DegradeConfig, rng: Rng, colour: bool) -> Tensor:
    """Degrade an image in the order of a camera: light, lens, sensor, recorder."""
    if colour and _drawn(config.grey, rng):
        image = to_grey(image)
    if colour and _drawn(config.colour_cast, rng):
        image = apply_curves(image, cast_curves(np.exp(rng.uniform(math.log(0.75), math.log(1.33), size=3))))
    if _drawn(config.exposure, rng):
        gain = math.exp(rng.uniform(math.log(0.25), math.log(1.4)))
        curve = exposure_curve(
            gain, rng.uniform(0.7, 1.5), rng.uniform(0.5, 1.3), float(image.float().mean())
        )
        image = apply_curves(image, np.stack([curve] * 3))
    if _drawn(config.blur, rng):
        image = blur(image, rng.uniform(0.004, 0.02) * image.shape[2])
    if _drawn(config.noise, rng):
        noise = rng.standard_normal(image.shape, dtype=np.float32) * rng.uniform(3, 20)
        image = _to_bytes(image.float() + torch.from_numpy(noise.astype(np.float32)))
    if _drawn(config.resolution, rng):
        image = shrink(image, rng.uniform(0.15, 0.5))
    if _drawn(config.compression, rng):
        image = compress(image, int(rng.integers(8, 51)), rng.uniform(0.4, 0.8))
    return image


def to_grey(image: Tensor) -> Tensor:
    """The brightness of an image in all three channels."""
    weights = torch.tensor(BRIGHTNESS)[:, None, None]
    return _to_bytes((image.float() * weights).sum(0, keepdim=True)).expand(3, -1, -1)


def cast_curves(gains: np.ndarray) -> np.ndarray:
    """Curves (3, 256) that multiply each channel by its gain, the brightness of white kept."""
    curves: np.ndarray = np.arange(256)[None] * (gains / gains.mean())[:, None]
    return curves


def exposure_curve(gain: float, gamma: float, contrast: float, mean: float) -> np.ndarray:
    """Curve (256,) of another exposure; `contrast` acts around `mean`, the mean grey level of the image."""
    level = np.arange(256) / 255
    middle = mean / 255
    level = np.clip((level - middle) * contrast + middle, 0, 1)
    return 255 * np.clip(level**gamma * gain, 0, 1)


def apply_curves(image: Tensor, curves: np.ndarray) -> Tensor:
    """Replace every grey level by that of its channel's curve (3, 256)."""
    table = np.clip(np.rint(curves), 0, 255).astype(np.uint8)
    pixels = image.numpy()
    return torch.from_numpy(np.stack([np.take(table[c], pixels[c]) for c in range(3)]))


def blur(image: Tensor, sigma: float) -> Tensor:
    """Gaussian blur with a standard deviation of `sigma` pixels, edges repeated."""
    reach = max(1, math.ceil(2.5 * sigma))
    at = torch.arange(-reach, reach + 1, dtype=torch.float32)
    weights = torch.exp(-0.5 * (at / sigma) ** 2)
    weights /= weights.sum()
    x = F.pad(image[:, None].float(), (reach, reach, reach, reach), mode="replicate")
    x = F.conv2d(x, weights[None, None, :, None])
    return _to_bytes(F.conv2d(x, weights[None, None, None, :])[:, 0])


def shrink(image: Tensor, share: float) -> Tensor:
    """An image that was taken at `share` of its size."""
    _, H, W = image.shape
    return resized(resized(image, (max(1, round(H * share)), max(1, round(W * share)))), (H, W))


def compress(image: Tensor, quality: int, share: float) -> Tensor:
    """An image that was compressed as JPEG at `share` of its size."""
    _, H, W = image.shape
    small = resized(image, (max(8, round(H * share)), max(8, round(W * share))))
    pixels = np.ascontiguousarray(small.permute(1, 2, 0).numpy())
    data = simplejpeg.encode_jpeg(pixels, quality=quality, colorspace="RGB", colorsubsampling="420")
    back = torch.from_numpy(simplejpeg.decode_jpeg(data, colorspace="RGB")).permute(2, 0, 1)
    return resized(back, (H, W))


def cut_out(image: Tensor, top: int, left: int, size: tuple[int, int]) -> Tensor:
    """The part of an image of `size` (height, width) with its corner at (top, left); black outside it."""
    (height, width), (_, H, W) = size, image.shape
    return F.pad(image, (-left, left + width - W, -top, top + height - H))


def resized(image: Tensor, size: tuple[int, int], mode: str = "bilinear") -> Tensor:
    """Resize by interpolation with antialiasing."""
    if image.shape[1:] == size:
        return image
    return F.interpolate(image[None], size, mode=mode, antialias=True, align_corners=False)[0]


def _drawn(probability: float, rng: Rng) -> bool:
    return probability > 0 and rng.random() < probability


def _to_bytes(image: Tensor) -> Tensor:
    return image.round().clamp(0, 255).to(torch.uint8)
