"""Features of batches by torch: the one place where a model is run to be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from slimreid.data.batches import ModalBatch
from slimreid.devices import Precision, autocast
from slimreid.models.reid_model import ReIDModel


@dataclass(frozen=True)
class EmbeddedBatch:
    """What a model makes of one batch."""

    batch: ModalBatch
    """On the model's device."""
    features: dict[str, Tensor]
    """By kind, (B, D), as the model gives them."""


@torch.no_grad()
def embed_batches(
    model: ReIDModel, batches: Iterable[ModalBatch], device: torch.device, precision: Precision = "fp32"
) -> Iterator[EmbeddedBatch]:
    """Run a model in eval mode over batches.

    This is the only place where torch computes features for use: training, evaluation and embedding all
    come here.
    """
    training = model.training
    model.eval()
    try:
        for batch in batches:
            batch = batch.to(device, non_blocking=True)
            with autocast(precision, device):
                features = model(batch).features
            yield EmbeddedBatch(batch, features)
    finally:
        model.train(training)
