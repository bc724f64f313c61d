"""Mixing the looks of samples in a batch: MixStyle on the pixels, so that a model relies on them less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from slimreid.config import TransformConfig
from slimreid.data.batches import ModalBatch

_PURPOSE = 0x7374796C
"""Keeps these draws apart from others that are seeded by a seed, a step and one more number."""
_CONCENTRATION = 0.3
"""Of the Beta distribution of the mixing weight: mostly near 0 or 1."""


def mix_styles(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch as training sees it in its step `step`, with channel statistics mixed, if asked for.

    With probability `transforms.degrade.style` a sample's mean and deviation per channel become a mixture of
    its own and those of another sample, in every modality that both have. The draws follow from (seed, step)
    alone. Images are (B, 3, H, W), normalised.
    """
    probability = config.degrade.style
    if not probability or len(batch) < 2:
        return batch
    rng = np.random.default_rng([seed, step, _PURPOSE])
    B = len(batch)
    partner = torch.from_numpy(rng.permutation(B))
    own = torch.from_numpy(rng.beta(_CONCENTRATION, _CONCENTRATION, size=B).astype(np.float32))
    mixes = torch.from_numpy(rng.random(B) < probability) & (partner != torch.arange(B))
    own = torch.where(mixes, own, torch.ones(B))
    images = {}
    for m, (name, image) in enumerate(batch.images.items()):
        both = (batch.present[:, m] & batch.present[partner.to(batch.present.device), m]).cpu()
        weight = torch.where(both, own, torch.ones(B)).to(image.device)[:, None, None, None]
        std, mean = torch.std_mean(image, dim=(2, 3), keepdim=True)
        std = std.clamp_min(1e-3)
        other = partner.to(image.device)
        new_mean = weight * mean + (1 - weight) * mean[other]
        new_std = weight * std + (1 - weight) * std[other]
        mixed = (image - mean) / std * new_std + new_mean
        images[name] = torch.where(weight < 1, mixed, image)
    return replace(batch, images=images)
