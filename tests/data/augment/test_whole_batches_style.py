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
    return ModalBatch(images, present, numbers, numbers, numbers, numbers, ({},) * B)


def config(probability):
    return TransformConfig(degrade=DegradeConfig(style=probability))


def test_it_is_the_plain_loop():
    """Mean and deviation of a channel become a mixture of two samples' own; the pattern stays."""
    batch = make_batch([[1, 1]] * 6)
    mixed = mix_styles(batch, config(1.0), seed=1, step=2)
    for name in NAMES:
        x, y = batch.images[name].numpy(), mixed.images[name].numpy()
        for b in range(6):
            shares = []
            for c in range(3):
                pattern = (x[b, c] - x[b, c].mean()) / x[b, c].std()
                assert np.allclose((y[b, c] - y[b, c].mean()) / y[b, c].std(), pattern, atol=1e-4)
                shares.append(y[b, c].mean())
            partners = [
                p
                for p in range(6)
                if any(
                    np.allclose(
                        shares, [w * x[b, c].mean() + (1 - w) * x[p, c].mean() for c in range(3)], atol=2e-3
                    )
                    for w in np.linspace(0, 1, 1001)
                )
            ]
            assert partners, f"sample {b} has the mean of no mixture"


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
