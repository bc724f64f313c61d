"""How long computations take: interleaved repetitions, medians, ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from slimreid.data.sample_reader import ImageBatch
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel

Rounds = Callable[[range], Iterable[int]]
"""Goes through the rounds, e.g. with a progress bar: `lambda rounds: progress(rounds, "measuring")`."""


def measure_interleaved(
    cases: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    warmup: int = 1,
    rounds: Rounds = iter,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every case in every repetition, after `warmup` rounds that do not count.

    The cases take turns, so that a machine that is busy for a while is busy for all of them. Work on a
    GPU is waited for. With `time.process_time` as `clock` other programs hardly count. Raises
    `ConfigError` for fewer than one repetition.
    """
    if repeats < 1 or warmup < 0:
        raise ConfigError(f"repeats must be at least 1 and warmup at least 0, not {repeats} and {warmup}")
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in rounds(range(warmup + repeats)):
        for name, run in cases.items():
            _wait()
            start = clock()
            run()
            _wait()
            if number >= warmup:
                seconds[name].append(clock() - start)
    return seconds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median seconds of each case."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def median_ratios(seconds: Mapping[str, Sequence[float]], reference: str) -> dict[str, float]:
    """How many times as fast as `reference` each case is: the median of the ratios within a repetition."""
    return {
        name: statistics.median(r / v for r, v in zip(seconds[reference], values, strict=True))
        for name, values in seconds.items()
    }


def random_batch(model: ReIDModel, batch: int) -> tuple[dict[str, Tensor], Tensor]:
    """Images {modality: (batch, 3, H, W)} of noise and cameras (batch,), on the device of the model."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    size = (batch, 3, *model.backbone.image_size)
    images = {name: torch.randn(size, generator=generator).to(device) for name in model.modalities}
    return images, torch.zeros(batch, dtype=torch.int64, device=device)


def noise_images(modalities: Sequence[str], size: tuple[int, int], batch: int) -> ImageBatch:
    """`batch` samples of noise in all modalities, for any model in use."""
    rng = np.random.default_rng(0)
    shape = (batch, 3, *size)
    return ImageBatch(
        {name: rng.standard_normal(shape, dtype=np.float32) for name in modalities},
        np.ones((batch, len(modalities)), np.bool_),
        np.zeros(batch, np.int64),
        np.arange(batch),
    )


def embedder(model: ReIDModel, images: Mapping[str, Tensor], cameras: Tensor) -> Callable[[], object]:
    """A function that embeds the same batch again and again; the model must be in eval mode."""

    def run() -> object:
        with torch.inference_mode():
            return model(images, cameras)

    return run
