"""Random changes of whole batches: modality dropout, removing colour, and mixing the styles of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np
import torch

from slimreid.config import TransformConfig
from slimreid.data.augment.degrade import BRIGHTNESS
from slimreid.data.augment.transforms import Rng
from slimreid.data.batches import ModalBatch
from slimreid.modalities import describe

_DROPOUT, _STYLE, _GREY = 0x64726F70, 0x7374796C, 0x67726579
"""Keep these draws apart from others that are seeded by a seed, a step and one more number."""
_CONCENTRATION = 0.3
"""Of the Beta distribution of the mixing weight: mostly near 0 or 1."""


def augment_batch(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch as training sees it in its step `step`, from 0; all draws follow from (seed, step) alone."""
    batch = drop_from_batch(batch, config, seed, step)
    return mix_styles(remove_colour(batch, config, seed, step), config, seed, step)


def drop_from_batch(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch with some modalities left out, if asked for.

    All samples lack the same, so that losses compare like with like. What is left out follows from (seed,
    step) alone, so it is the same in all processes and after a resume.
    """
    if not config.drops_modalities:
        return batch
    return batch_dropout(batch, config, np.random.default_rng([seed, step, _DROPOUT]))


def draw_dropout(present: Sequence[str], config: TransformConfig, rng: Rng) -> tuple[str, ...]:
    """The modalities that stay: each is dropped with its probability, but one always stays."""
    if not config.drops_modalities or len(present) == 1:
        return tuple(present)
    draws = rng.random(len(present))
    spare = draws - np.array([config.dropout_of(name) for name in present])
    stay = tuple(name for name, left in zip(present, spare, strict=True) if left >= 0)
    return stay or (present[int(spare.argmax())],)


def batch_dropout(batch: ModalBatch, config: TransformConfig, rng: Rng) -> ModalBatch:
    """Leave each modality out of all samples with its probability; one always stays.

    A sample that has none of those that stay keeps what it has.
    """
    stay = draw_dropout(batch.modalities, config, rng)
    if len(stay) == len(batch.modalities):
        return batch
    kept = torch.tensor([name in stay for name in batch.modalities], device=batch.present.device)
    present = batch.present & kept
    present = torch.where(present.any(1, keepdim=True), present, batch.present)
    images = {
        name: image if name in stay else image.masked_fill(~present[:, m, None, None, None], 0)
        for m, (name, image) in enumerate(batch.images.items())
    }
    paths = tuple(
        {name: path for name, path in files.items() if name in compress(batch.modalities, row)}
        for files, row in zip(batch.paths, present.tolist(), strict=True)
    )
    return replace(batch, images=images, present=present, paths=paths)


def remove_colour(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch with all its colour images grey, with probability `transforms.degrade.grey_batch`.

    Drawn from (seed, step) alone. Where only some images are grey, colours still tell most people apart; here
    nothing but brightness and shape does.
    """
    probability = config.degrade.grey_batch
    if not probability or np.random.default_rng([seed, step, _GREY]).random() >= probability:
        return batch
    weights = torch.tensor(BRIGHTNESS)[:, None, None]
    images = {
        name: (image * weights.to(image)).sum(1, keepdim=True).expand_as(image)
        if describe(name).colour
        else image
        for name, image in batch.images.items()
    }
    return replace(batch, images=images)


def mix_styles(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch with channel statistics mixed, if asked for: MixStyle on pixels, so that looks count less.

    With probability `transforms.degrade.style` a sample's mean and deviation per channel become a mixture of
    its own and those of another sample, in every modality that both have. The draws follow from (seed, step)
    alone. Images are (B, 3, H, W), normalised.
    """
    probability = config.degrade.style
    if not probability or len(batch) < 2:
        return batch
    rng = np.random.default_rng([seed, step, _STYLE])
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
