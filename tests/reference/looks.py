"""Looks by plain loops over pixels, for comparison with research/look_filters.py."""

import math

import numpy as np


def per_value(image, change):
    """Every value of (H, W, 3) through `change(value, channel)`, rounded to whole grey levels."""
    result = np.zeros_like(image)
    for y, x, c in np.ndindex(image.shape):
        result[y, x, c] = min(max(round(change(int(image[y, x, c]), c)), 0), 255)
    return result


def brightness(pixel):
    """Grey of one pixel (3,)."""
    return 0.299 * int(pixel[0]) + 0.587 * int(pixel[1]) + 0.114 * int(pixel[2])


def mean_grey(image):
    """Mean brightness of (H, W, 3)."""
    H, W = image.shape[:2]
    return sum(brightness(image[y, x]) for y in range(H) for x in range(W)) / (H * W)


def weighted_rows(image, weights):
    """Every pixel as a weighted sum of its neighbours in the row; the edge goes on outside."""
    H, W = image.shape[:2]
    reach = len(weights) // 2
    result = np.zeros(image.shape)
    for y in range(H):
        for x in range(W):
            for k, weight in enumerate(weights):
                result[y, x] += weight * image[y, min(max(x + k - reach, 0), W - 1)]
    return result


def gaussian(image, sigma):
    """Gaussian blur out to four sigma along rows and columns."""
    reach = int(4 * sigma + 0.5)
    weights = [math.exp(-(k**2) / (2 * sigma**2)) for k in range(-reach, reach + 1)]
    weights = [weight / sum(weights) for weight in weights]
    columns = weighted_rows(image.astype(float).transpose(1, 0, 2), weights).transpose(1, 0, 2)
    return weighted_rows(columns, weights)
