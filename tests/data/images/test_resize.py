"""Resizing without torch gives torch's bytes, whatever the size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from slimreid.data.augment.transforms import fast_resize
from slimreid.data.images.resize import integer_weights, resize
from support.hypotheses import image_arrays

MODES = ["bicubic", "bilinear"]
SIDES = st.integers(1, 150)


@settings(max_examples=150, deadline=None)
@given(image_arrays(most=220), st.tuples(SIDES, SIDES), st.sampled_from(MODES))
def test_bytes_are_those_of_torch(pixels, size, mode):
    np.testing.assert_array_equal(resize(pixels, size, mode), fast_resize(pixels, size, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("given_size", [(128, 64), (512, 256), (171, 83), (1080, 610), (2, 3000), (1, 1)])
def test_bytes_are_those_of_torch_at_sizes_in_use(given_size, mode):
    rng = np.random.default_rng(sum(given_size))
    noise = rng.integers(0, 256, (*given_size, 3), dtype=np.uint8)
    extreme = np.where(noise < 128, 0, 255).astype(np.uint8)  # overshoots most
    for pixels in (noise, extreme):
        np.testing.assert_array_equal(resize(pixels, (256, 128), mode), fast_resize(pixels, (256, 128), mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(64, 32), (50, 31), (20, 10)])
def test_it_is_pillows_within_one_level(mode, size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    ours = resize(pixels, (32, 16), mode).transpose(1, 2, 0).astype(int)
    method = Image.Resampling.BICUBIC if mode == "bicubic" else Image.Resampling.BILINEAR
    theirs = np.asarray(Image.fromarray(pixels).resize((16, 32), method)).astype(int)
    assert abs(ours - theirs).max() <= 1


def test_the_right_size_is_left_alone():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 16, 3), dtype=np.uint8)
    for way in (resize, fast_resize):
        np.testing.assert_array_equal(way(pixels, (32, 16), "bicubic"), pixels.transpose(2, 0, 1))


@given(st.integers(1, 5000), st.integers(1, 600), st.sampled_from(MODES))
@example(5000, 1, "bicubic")
def test_weights_are_16_bit_numbers_that_sum_to_one(source, length, mode):
    first, weights, bits = integer_weights(source, length, mode)
    assert abs(weights).max() < 2**15
    assert first.min() >= 0
    # Each weight is rounded on its own.
    assert abs(weights.sum(axis=1) - 2**bits).max() <= weights.shape[1] / 2
    beyond = first[:, None] + np.arange(weights.shape[1]) >= source
    assert not weights[beyond].any()
