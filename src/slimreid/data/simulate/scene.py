"""What a photograph of a person shows, estimated from its pixels alone: regions, materials, body.

Everything here is a smooth, deterministic function of the picture; there is no randomness. The
estimates are rough on purpose-built cues (no network), good enough to place heat and reflectance.
Equations: docs/simulated.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from slimreid.arrays import Floats, Pixels

REGION_GRID = (6, 3)
"""Rows × columns of the grid from which the colour regions grow."""

REGION_SCALE = np.array([1.5, 3.0, 3.0, 0.35, 0.6], np.float32)
"""Weights of lightness, the two chroma axes, x and y in the distance between pixel and region."""

# Half width of an upright person in an average box, as a share of the box's width, from top to bottom.
_PROFILE_Y = (0.00, 0.04, 0.09, 0.15, 0.20, 0.30, 0.45, 0.60, 0.80, 0.95, 1.00)
_PROFILE_W = (0.00, 0.10, 0.14, 0.13, 0.28, 0.34, 0.33, 0.28, 0.23, 0.24, 0.18)


@dataclass(frozen=True)
class Scene:
    """A picture of H × W pixels explained as R soft regions, some known materials and one body.

    | field        | shape     | what                                                       |
    |--------------|-----------|------------------------------------------------------------|
    | `luma`       | (H, W)    | brightness, 0 … 1                                          |
    | `shares`     | (R, H, W) | how much of a pixel belongs to each region; sums to 1      |
    | `colour`     | (R, 3)    | mean lightness and two chroma axes of each region          |
    | `skin`       | (H, W)    | 0 … 1, skin-like colour                                    |
    | `vegetation` | (H, W)    | 0 … 1, leaf-like colour                                    |
    | `sky`        | (H, W)    | 0 … 1, bright and plain in the upper part                  |
    | `body`       | (H, W)    | 0 … 1, belongs to the person in the middle                 |
    | `height`     | (H, W)    | 0 at the top of that person, 1 at the feet, not clipped    |
    | `unit`       | –         | pixels per 1/64 of the shorter side: the scale of filters  |
    """

    luma: Floats
    shares: Floats
    colour: Floats
    skin: Floats
    vegetation: Floats
    sky: Floats
    body: Floats
    height: Floats
    unit: float

    def paint(self, values: Floats) -> Floats:
        """(H, W) map of one value per region, (R,), blended where regions meet."""
        # einsum, here and below, because it sums in one fixed order; a matrix product may follow the
        # number of threads, and the bytes must not.
        painted: Floats = np.einsum("r,rhw->hw", values.astype(np.float32), self.shares)
        return painted


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(−x)) without overflow."""
    value: Floats = 0.5 * (1.0 + np.tanh(0.5 * x))
    return value


def blur(image: Floats, sigma: float) -> Floats:
    """Gaussian blur of (H, W) or, per channel, of (H, W, D)."""
    sigmas = (sigma, sigma, 0.0)[: image.ndim]
    blurred: Floats = ndimage.gaussian_filter(image, sigmas, mode="nearest", truncate=3.0)
    return blurred


def grid(H: int, W: int) -> tuple[Floats, Floats]:
    """Coordinates of the pixel centres from 0 to 1: y as (H, 1), x as (1, W)."""
    y: Floats = (np.arange(H, dtype=np.float32) + np.float32(0.5)) / np.float32(H)
    x: Floats = (np.arange(W, dtype=np.float32) + np.float32(0.5)) / np.float32(W)
    return y[:, None], x[None, :]


def _brightness(rgb: Floats) -> Floats:
    luma: Floats = 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]
    return luma


def opponent(rgb: Floats) -> Floats:
    """(..., 3) colours in 0 … 1 as lightness and two chroma axes that hardly change with exposure.

    Chroma is compressed to ±½, or one vivid cloth would fall apart into many colours.
    """
    r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    lightness = (r + g + b) / 3.0
    scale = 2.0 / (lightness + 0.25)
    red, yellow = (r - g) * scale, ((r + g) / 2.0 - b) * scale
    return np.stack([lightness, 0.5 * np.tanh(red), 0.5 * np.tanh(yellow)], axis=-1)


def _regions(colour: Floats) -> tuple[Floats, Floats]:
    """Soft clustering by colour and place: shares (R, H, W) and mean colours (R, 3).

    The centres are found by k-means on a thinned picture, started on a fixed grid.
    """
    H, W, _ = colour.shape
    y, x = np.broadcast_arrays(*grid(H, W))
    planes = [*np.moveaxis(colour, -1, 0), 2.0 * x, 2.0 * y]
    features = np.stack(planes) * REGION_SCALE[:, None, None]  # (5, H, W)
    thin = features[:, :: max(1, H // 64), :: max(1, W // 32)]
    D, h, w = thin.shape
    rows, columns = REGION_GRID
    starts_y = (np.arange(rows) * 2 + 1) * h // (2 * rows)
    starts_x = (np.arange(columns) * 2 + 1) * w // (2 * columns)
    centres = thin[:, starts_y][:, :, starts_x].reshape(D, -1).T
    points = np.ascontiguousarray(thin).reshape(D, -1)
    for sharpness in (10.0, 20.0, 30.0, 40.0, 40.0):
        weights = _assign(points, centres, sharpness)
        mass = weights.sum(axis=1)[:, None]
        # An empty region stays where it is instead of jumping to the origin.
        centres = (np.einsum("rp,dp->rd", weights, points) + 1e-3 * centres) / (mass + 1e-3)
    shares = _assign(features.reshape(D, -1), centres, 40.0).reshape(-1, H, W)
    return shares, centres[:, :3] / REGION_SCALE[:3]


def _assign(points: Floats, centres: Floats, sharpness: float) -> Floats:
    """Softmax over regions of the negative squared distance: (D, P), (R, D) to (R, P)."""
    nearness = np.einsum("rd,dp->rp", 2.0 * centres, points) - (centres**2).sum(axis=1)[:, None]
    weights = np.exp(sharpness * (nearness - nearness.max(axis=0)))
    shares: Floats = weights / weights.sum(axis=0)
    return shares


def region_means(shares: Floats, image: Floats) -> Floats:
    """Mean of an (H, W) map over each of the regions (R, H, W): (R,)."""
    means: Floats = np.einsum("rhw,hw->r", shares, image) / (shares.sum(axis=(1, 2)) + 1e-6)
    return means


def _skin(rgb: Floats) -> Floats:
    """Likeness to skin in the red-difference and blue-difference plane; dark pixels never are."""
    luma = _brightness(rgb)
    cb = 0.564 * (rgb[..., 2] - luma)
    cr = 0.713 * (rgb[..., 0] - luma)
    distance = ((cb + 0.075) / 0.045) ** 2 + ((cr - 0.090) / 0.040) ** 2
    likeness: Floats = np.exp(-0.5 * distance) * sigmoid((luma - 0.25) / 0.06)
    return likeness


def _body(colour: Floats, shares: Floats) -> Floats:
    """Soft mask of the person in the middle, from place, from region and from unlikeness to the sides."""
    H, W, _ = colour.shape
    y, x = grid(H, W)
    half = np.interp(y, _PROFILE_Y, _PROFILE_W).astype(np.float32)
    place = (half - np.abs(x - 0.5)) / 0.07
    prior = sigmoid(place)

    # Background tends to run through to the sides of its own row.
    band = max(1, W // 12)
    weights = REGION_SCALE[:3]
    left = colour[:, :band].mean(axis=1, keepdims=True)
    right = colour[:, -band:].mean(axis=1, keepdims=True)
    contrast = np.minimum(
        (((colour - left) * weights) ** 2).sum(-1), (((colour - right) * weights) ** 2).sum(-1)
    )
    unlike = 1.0 - np.exp(-contrast / 0.12)

    inside = region_means(shares, prior)
    region = np.einsum("r,rhw->hw", inside - prior.mean(), shares)
    return sigmoid(np.clip(place, -4.0, 3.0) + 3.0 * region + 3.5 * (unlike - 0.45))


def _height(body: Floats) -> Floats:
    """Position along the person, 0 … 1 between the 1 % and 99 % quantiles of the mask's rows."""
    H, W = body.shape
    rows = np.cumsum(body.sum(axis=1, dtype=np.float64))
    edges = (np.arange(H) + 1.0) / H
    top, bottom = np.interp([0.01 * rows[-1], 0.99 * rows[-1]], rows, edges)
    y, _ = grid(H, W)
    along: Floats = ((y - top) / max(bottom - top, 0.25)).astype(np.float32)
    return np.repeat(along, W, axis=1)


def read_scene(rgb: Pixels) -> Scene:
    """Explain an (H, W, 3) uint8 picture of one upright person."""
    H, W, _ = rgb.shape
    unit = min(H, W) / 64.0
    sharp = rgb.astype(np.float32) / 255.0
    smooth = blur(sharp, 0.8 * unit)
    colour = opponent(smooth)
    shares, means = _regions(colour)
    body = blur(_body(colour, shares), 0.8 * unit)

    luma = _brightness(sharp)
    texture = blur(np.abs(luma - _brightness(smooth)), 2.0 * unit)
    total = smooth.sum(axis=-1) + 1e-3
    green = (2.0 * smooth[..., 1] - smooth[..., 0] - smooth[..., 2]) / total
    y, _ = grid(H, W)
    bright = sigmoid((colour[..., 0] - 0.80) / 0.04) * sigmoid((0.35 - y) / 0.06)
    tint = np.maximum(np.abs(colour[..., 1]), colour[..., 2])  # blue is no tint for a sky
    plain = np.exp(-texture / 0.015 - (tint / 0.15) ** 2)
    return Scene(
        luma=luma,
        shares=shares,
        colour=means,
        skin=_skin(smooth),
        vegetation=sigmoid((green - 0.10) / 0.025) * (1.0 - 0.7 * body),
        sky=np.minimum.accumulate(bright * plain * (1.0 - body), axis=0),
        body=body,
        height=_height(body),
        unit=unit,
    )
