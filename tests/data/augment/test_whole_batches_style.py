"""Mixing of channel statistics between the samples of a batch."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slimreid.config import DegradeConfig, TransformConfig
from slimreid.data.augment.whole_batches import mix_styles
from slimreid.data.batches import ModalBatch

NAMES = ("rgb", "tir")


def make_batch(present, seed=0):
    present = torch.tensor(present, dtype=torch.bool)
    B, numbers = len(present), torch.arange(len(present))
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.5, 2, B)[:, None, None, None]
    images = {
        name: (torch.randn(B, 3, 6, 5, generator=generator) * scale + scale) * present[:, m, None, None, None]
        for m, name in enumerate(NAMES)
    }
    return ModalBatch(images, present, numbers, numbers, numbers, ({},) * B)


def config(probability):
    return TransformConfig(degrade=DegradeConfig(style=probability))


def test_it_is_the_plain_loop():
    """Mean and deviation of a channel become a mixture of two samples' own; the pattern stays."""
    batch, B = make_batch([[1, 1]] * 6), 6
    mixed = mix_styles(batch, config(1.0), seed=1, step=2)
    rng = np.random.default_rng([1, 2, 0x7374796C])
    partner, own = rng.permutation(B), rng.beta(0.3, 0.3, size=B)
    assert (own < 0.9).sum() >= 3, "some of them change"
    for name in NAMES:
        x, y = batch.images[name].numpy(), mixed.images[name].numpy()
        for b in range(B):
            w = own[b] if partner[b] != b else 1.0
            for c in range(3):
                mine, other = x[b, c], x[partner[b], c]
                mean = w * mine.mean() + (1 - w) * other.mean()
                std = w * mine.std(ddof=1) + (1 - w) * other.std(ddof=1)
                expected = (mine - mine.mean()) / mine.std(ddof=1) * std + mean
                np.testing.assert_allclose(y[b, c], expected, atol=1e-4)


def test_off_and_alone_nothing_happens():
    batch = make_batch([[1, 1]] * 4)
    assert mix_styles(batch, config(0.0), 0, 0) is batch
    single = make_batch([[1, 0]])
    assert mix_styles(single, config(1.0), 0, 0) is single


def test_absent_modalities_stay_zero_and_lend_nothing():
    batch = make_batch([[1, 0], [1, 1], [1, 0], [1, 0]])
    for step in range(10):
        mixed = mix_styles(batch, config(1.0), 0, step)
        assert torch.equal(mixed.images["tir"], batch.images["tir"]), "nobody shares tir with sample 1"
        assert torch.equal(mixed.present, batch.present)


def test_the_draw_follows_from_seed_and_step_and_hits_its_rate():
    batch = make_batch([[1, 1]] * 8)
    assert_close(mix_styles(batch, config(0.5), 3, 4).images, mix_styles(batch, config(0.5), 3, 4).images)
    changed = torch.stack(
        [
            (mix_styles(batch, config(0.5), 3, step).images["rgb"] != batch.images["rgb"]).flatten(1).any(1)
            for step in range(300)
        ]
    )
    assert float(changed.float().mean()) == pytest.approx(0.5 * 7 / 8, abs=0.06)
