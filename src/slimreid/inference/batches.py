"""Features of batches: the one place where a model is run to be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slimreid.data.batches import ModalBatch
from slimreid.devices import Precision, autocast, is_out_of_memory
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.models.reid_model import BOTH, ReIDModel

ALL = "all"
Subset = tuple[str, ...]
"""Modalities that a model is shown, in canonical order."""


@dataclass(frozen=True)
class EmbeddedBatch:
    """What a model makes of one batch in one subset of modalities."""

    subset: int
    """Which of the subsets asked for."""
    batch: ModalBatch
    """On the model's device; samples without any modality of the subset are left out."""
    features: dict[str, Tensor]
    """By kind, (B, D), as the model gives them."""


@torch.no_grad()
def embed_batches(
    model: ReIDModel,
    batches: Iterable[ModalBatch],
    device: torch.device,
    precision: Precision = "fp32",
    subsets: Sequence[Subset | None] = (None,),
) -> Iterator[EmbeddedBatch]:
    """Run a model in eval mode over batches, each in every subset (None = whatever is there).

    This is the only place where features for use are computed: training, evaluation and embedding all
    come here.
    """
    training = model.training
    model.eval()
    try:
        for whole in batches:
            for number, subset in enumerate(subsets):
                batch = whole if subset is None else show_only(whole, subset)
                if batch is None:
                    continue
                batch = batch.to(device, non_blocking=True)
                with autocast(precision, device):
                    features = model(batch).features
                yield EmbeddedBatch(number, batch, features)
    finally:
        model.train(training)


@contextmanager
def memory_explained(samples: int) -> Iterator[None]:
    """Raise `ModelError` with a cure where a batch of so many samples does not fit into memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"not enough memory to embed {samples} samples at once; take fewer with --batch"
        ) from None


def check_finite(features: Tensor, names: Sequence[object]) -> None:
    """Raise `DataError` naming the first of the samples whose feature, a row of (B, D), is not finite."""
    wrong = (~features.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
    if wrong:
        raise DataError(
            f"{names[wrong[0]]}: its feature has NaN or infinity ({len(wrong)} of {len(features)} samples); "
            "are the weights whole, and was the model trained in this precision?"
        )


def show_only(batch: ModalBatch, subset: Subset) -> ModalBatch | None:
    """The samples of a batch that have one of these modalities, without their others; None for none."""
    columns = [m for m, name in enumerate(batch.modalities) if name in subset]
    present = batch.present[:, columns]
    rows = present.any(dim=1)
    if not bool(rows.any()):
        return None
    names = [batch.modalities[m] for m in columns]
    if bool(rows.all()):
        return replace(batch, images={n: batch.images[n] for n in names}, present=present)
    kept = rows.nonzero()[:, 0]
    return replace(
        batch,
        images={n: batch.images[n][kept] for n in names},
        present=present[kept],
        identity=batch.identity[kept],
        camera=batch.camera[kept],
        scene=batch.scene[kept],
        index=batch.index[kept],
        paths=tuple(batch.paths[i] for i in kept.tolist()),
    )


def check_kind(kind: str, kinds: Sequence[str]) -> None:
    """Raise `ConfigError` for a kind of feature that is not among those of a model."""
    if kind not in kinds:
        raise ConfigError(f"the model has no feature '{kind}'; it has {', '.join(kinds)}")


def feature_kinds(model: ReIDModel, wanted: str = ALL) -> tuple[str, ...]:
    """The kinds of features meant by `wanted`; raises `ConfigError` for one that the model does not have."""
    if wanted != ALL:
        check_kind(wanted, tuple(model.sizes))
        return (wanted,)
    # Without a second branch both together are the first one again.
    return tuple(kind for kind in model.sizes if kind != BOTH or model.second)
