"""Modality dropout of whole batches: all samples lack the same, so that losses compare like with like."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

import numpy as np
import torch

from slimreid.config import TransformConfig
from slimreid.data.augment.transforms import Rng, draw_dropout
from slimreid.data.batches import ModalBatch

_PURPOSE = 0x64726F70
"""Keeps these draws apart from others that are seeded by a seed, a step and one more number."""


def drop_from_batch(batch: ModalBatch, config: TransformConfig, seed: int, step: int) -> ModalBatch:
    """The batch as training sees it in its step `step`, from 0: some modalities left out, if asked for.

    What is left out follows from (seed, step) alone, so it is the same in all processes and after a resume.
    Dropout of single samples is not done here: it is part of their augmentation.
    """
    if not config.drops_modalities or config.dropout_unit != "batch":
        return batch
    return batch_dropout(batch, config, np.random.default_rng([seed, step, _PURPOSE]))


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
