"""Removing the colour of whole batches."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slimreid.config import DegradeConfig, TransformConfig
from slimreid.data.augment.whole_batches import augment_batch, remove_colour
from slimreid.data.batches import ModalBatch

NAMES = ("rgb", "nir", "tir")


def make_batch():
    """Two samples; the second has no rgb."""
    present = torch.tensor([[1, 1, 1], [0, 1, 1]], dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    images = {
        name: torch.randn(2, 3, 6, 5, generator=generator) * present[:, m, None, None, None]
        for m, name in enumerate(NAMES)
    }
    numbers = torch.arange(2)
    return ModalBatch(images, present, numbers, numbers, numbers, ({},) * 2)


def config(probability):
    return TransformConfig(degrade=DegradeConfig(grey_batch=probability))


def test_it_is_the_plain_loop_for_colour_images_alone():
    batch = make_batch()
    grey = remove_colour(batch, config(1.0), seed=1, step=2)
    x = batch.images["rgb"].numpy()
    for b in range(2):
        for i in range(6):
            for j in range(5):
                red, green, blue = x[b, :, i, j]
                expected = np.full(3, 0.299 * red + 0.587 * green + 0.114 * blue)
                np.testing.assert_allclose(grey.images["rgb"][b, :, i, j], expected, atol=1e-6)
    assert not grey.images["rgb"][1].any(), "an absent image stays zero"
    for name in ("nir", "tir"):
        assert grey.images[name] is batch.images[name]


def test_off_nothing_happens():
    batch = make_batch()
    assert remove_colour(batch, config(0.0), 0, 0) is batch


def test_the_draw_follows_from_seed_and_step_and_hits_its_rate():
    batch = make_batch()
    changed = [remove_colour(batch, config(0.3), 3, step) is not batch for step in range(400)]
    assert changed == [remove_colour(batch, config(0.3), 3, step) is not batch for step in range(400)]
    assert np.mean(changed) == pytest.approx(0.3, abs=0.06)


def test_training_applies_it():
    batch = make_batch()
    found = augment_batch(batch, config(1.0), 0, 0).images["rgb"]
    assert_close(found[:, 0], found[:, 2])
