"""What a model sees of pixels: the same numbers in numpy as torch computes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from slimreid.data.images.values import normalise


def test_normalise():
    x = np.array([0, 255, 51], np.uint8)[:, None, None]
    np.testing.assert_allclose(normalise(x, 0.5, 0.5).ravel(), [-1.0, 1.0, -0.6], atol=1e-6)
    np.testing.assert_allclose(normalise(x, 0.2, 0.4).ravel(), [-0.5, 2.0, 0.0], atol=1e-6)


@given(st.floats(0, 1), st.floats(0.05, 2))
def test_numbers_are_those_of_torch_to_the_bit(mean, std):
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16).repeat(3, axis=0)
    expected = torch.from_numpy(levels).float().mul_(1 / (255 * std)).sub_(mean / std)
    for image in (levels, levels.transpose(1, 2, 0).copy().transpose(2, 0, 1)):
        found = normalise(image, mean, std)
        assert found.flags.c_contiguous
        assert found.tobytes() == expected.numpy().tobytes()
