"""Cost, latency and memory of a model in one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel
from slimreid.profiling.cost import ModelSummary, summarise
from slimreid.profiling.latency import Rounds, embedder, measure_interleaved, random_batch
from slimreid.profiling.memory import peak_tensor_bytes


@dataclass(frozen=True)
class BatchProfile:
    """What a forward pass of one batch takes."""

    batch: int
    """Samples in the batch, each with all modalities."""
    p50: float
    """Median seconds."""
    p95: float
    """Seconds that 95 % of the repetitions stay under."""
    samples_per_second: float
    images_per_second: float
    """A sample has one image per modality."""
    peak_bytes: int
    """Most bytes of tensors at once, besides weights and inputs."""


@dataclass(frozen=True)
class Profile:
    """What a model weighs, computes and takes."""

    summary: ModelSummary
    """Parameters, multiply-adds, tokens by block and stage, for one sample."""
    weight_bytes: int
    batches: tuple[BatchProfile, ...]
    modalities: tuple[str, ...]
    image_size: tuple[int, int]
    device: str
    threads: int
    repeats: int
    torch: str = torch.__version__

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **values,
            "summary": self.summary.to_dict(),
            "batches": [asdict(batch) for batch in self.batches],
            "modalities": list(self.modalities),
            "image_size": list(self.image_size),
        }


def profile_model(
    model: ReIDModel, batches: Sequence[int], repeats: int = 20, rounds: Rounds = iter
) -> Profile:
    """Measure forward passes in eval mode at the given batch sizes, in turn; the model comes back as it was.

    Raises `ConfigError` for no batch size, or one below 1.
    """
    if not batches or min(batches) < 1:
        raise ConfigError(f"batch sizes must be at least 1, not {', '.join(map(str, batches)) or 'none'}")
    was_training = model.training
    model.eval()
    try:
        passes = {str(batch): embedder(model, *random_batch(model, batch)) for batch in batches}
        seconds = measure_interleaved(passes, repeats, rounds=rounds)
        rows = [_batch_profile(model, batch, seconds[str(batch)]) for batch in batches]
        state = [*model.parameters(), *model.buffers()]
        return Profile(
            summary=summarise(model),
            weight_bytes=sum(tensor.nbytes for tensor in state),
            batches=tuple(rows),
            modalities=model.modalities,
            image_size=model.backbone.image_size,
            device=state[0].device.type,
            threads=torch.get_num_threads(),
            repeats=repeats,
        )
    finally:
        model.train(was_training)


def _batch_profile(model: ReIDModel, batch: int, seconds: Sequence[float]) -> BatchProfile:
    images, cameras = random_batch(model, batch)
    p50, p95 = (float(value) for value in np.quantile(seconds, [0.5, 0.95]))
    known = [*model.parameters(), *model.buffers(), *images.values(), cameras]
    return BatchProfile(
        batch=batch,
        p50=p50,
        p95=p95,
        samples_per_second=batch / p50,
        images_per_second=batch * len(model.modalities) / p50,
        peak_bytes=peak_tensor_bytes(embedder(model, images, cameras), known),
    )
