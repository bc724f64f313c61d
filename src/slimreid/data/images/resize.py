"""Resizing 8-bit images with anti-aliasing, to the byte as torch's `interpolate(antialias=True)` does it.

Separable: first along the width, then along the height, rounded to 8 bits in between. Weights are 16-bit
integers that share a number of fraction bits, so every sum is exact and no library or machine changes a
result. Sums are taken as products of matrices over blocks of the output, because each output pixel sees only
a few input pixels beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from slimreid.arrays import Pixels

Array: TypeAlias = npt.NDArray[Any]

_BLOCK = 16
"""Output pixels that share a product: more would multiply zeros, fewer would make many small products."""
_WEIGHT_BITS, _MOST_FRACTION_BITS = 15, 22
_UNTHREADED = 1 << 17
"""Multiplications up to which OpenBLAS, which numpy brings, stays in one thread; it is half of its limit."""
_MIDDLE = 128
"""Pixels are counted from here, so that sums are small enough for float32 more often."""


def resize(image: Pixels, size: tuple[int, int], mode: str) -> Pixels:
    """Resize (H, W, 3) uint8 to (3, *size) uint8 by `mode`, bilinear or bicubic; channels last in memory."""
    height, width = size
    if image.shape[1] != width:
        image = _resize_first(image.transpose(1, 0, 2), width, mode).transpose(1, 0, 2)
    if image.shape[0] != height:
        image = _resize_first(image, height, mode)
    planes: Pixels = image.transpose(2, 0, 1)
    return planes


@dataclass(frozen=True)
class _Block:
    """Weights of neighbouring output pixels `start` to `stop` over the input pixels `first` to `last`."""

    start: int
    stop: int
    first: int
    last: int
    weights: Array
    """(stop − start, last − first), whole numbers."""
    offset: Array
    """(stop − start, 1): what makes the shift round, and pixels count from 0 again."""


def _resize_first(image: Pixels, length: int, mode: str) -> Pixels:
    """Resize (L, A, 3) to (length, A, 3) along its first axis."""
    blocks, bits = _blocks(image.shape[0], length, mode)
    result = np.empty((length, *image.shape[1:]), np.uint8)
    for block in blocks:
        part = np.ascontiguousarray(image[block.first : block.last])
        centred = np.subtract(part, _MIDDLE, dtype=block.weights.dtype).reshape(len(part), -1)
        sums = _product(block.weights, centred)
        sums += block.offset
        sums *= 2.0**-bits  # exact: the shift of whole numbers, before its fraction is cut off
        np.clip(np.floor(sums, out=sums), 0, 255, out=sums)
        result[block.start : block.stop] = sums.reshape(-1, *image.shape[1:])
    return result


def _product(weights: Array, rows: Array) -> Array:
    """The product (m, n) of (m, k) and (k, n), in pieces for which a library wakes no threads of its own.

    Images are read by several threads already; more of them would wait for each other.
    """
    sums = np.empty((len(weights), rows.shape[1]), rows.dtype)
    step = max(1, _UNTHREADED // weights.size)
    for at in range(0, rows.shape[1], step):
        np.matmul(weights, rows[:, at : at + step], out=sums[:, at : at + step])
    return sums


@lru_cache(maxsize=1024)
def _blocks(source: int, length: int, mode: str) -> tuple[tuple[_Block, ...], int]:
    """Weights that resize `source` pixels to `length`, block by block, and their fraction bits."""
    first, weights, bits = integer_weights(source, length, mode)
    # Below 2^24 float32 holds every whole number, so all partial sums are exact in any order.
    exact = _MIDDLE * int(np.abs(weights).sum(axis=1).max()) < 1 << 24
    kind = np.float32 if exact else np.float64
    offset = (1 << (bits - 1)) + _MIDDLE * weights.sum(axis=1)
    blocks = []
    taps = np.arange(weights.shape[1])
    for start in range(0, length, _BLOCK):
        stop = min(start + _BLOCK, length)
        low = int(first[start])
        high = min(int(first[stop - 1]) + weights.shape[1], source)
        columns = first[start:stop, None] - low + taps
        dense = np.zeros((stop - start, max(high - low, int(columns.max()) + 1)), kind)
        np.put_along_axis(dense, columns, weights[start:stop].astype(kind), axis=1)
        part = np.ascontiguousarray(dense[:, : high - low])
        blocks.append(_Block(start, stop, low, high, part, offset[start:stop, None].astype(kind)))
    return tuple(blocks), bits


def integer_weights(source: int, length: int, mode: str) -> tuple[Array, Array, int]:
    """How `length` pixels are made of `source` pixels: first input (length,), weights (length, taps), bits.

    Weights are whole numbers; divided by 2^bits they sum to about 1. Taps beyond the edge weigh 0.
    """
    filter_, reach = _FILTERS[mode]
    scale = source / length
    support = reach * max(scale, 1.0)
    centre = scale * (np.arange(length) + 0.5)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + support + 0.5).astype(np.int64), source) - first
    taps = np.arange(math.ceil(support) * 2 + 1)
    shares = filter_((taps + first[:, None] - centre[:, None] + 0.5) * (1.0 / scale if scale >= 1 else 1.0))
    shares[taps >= count[:, None]] = 0.0
    shares /= np.add.accumulate(shares, axis=1)[:, -1:]  # in order: a pairwise sum would round otherwise
    largest = float(shares.max())
    bits = 0
    while bits < _MOST_FRACTION_BITS and int(0.5 + largest * (1 << (bits + 1))) < 1 << _WEIGHT_BITS:
        bits += 1
    scaled = shares * (1 << bits)
    return first, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64), bits


def _bilinear(x: Array) -> Array:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: Array, a: float = -0.5) -> Array:
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


_FILTERS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
}
"""Filter and its reach to either side, per mode."""
