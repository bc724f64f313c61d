"""How long and how much memory models take: interleaved repetitions, medians, ratios, peaks."""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel
from slimreid.models.summary import ModelSummary, summarise

Rounds = Callable[[range], Iterable[int]]
"""Goes through the rounds, e.g. with a progress bar: `lambda rounds: progress(rounds, "measuring")`."""


def measure_interleaved(
    cases: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    warmup: int = 1,
    rounds: Rounds = iter,
) -> dict[str, list[float]]:
    """Seconds of every case in every repetition, after `warmup` rounds that do not count.

    The cases take turns, so that a machine that is busy for a while is busy for all of them. Work on a
    GPU is waited for. Raises `ConfigError` for fewer than one repetition.
    """
    if repeats < 1 or warmup < 0:
        raise ConfigError(f"repeats must be at least 1 and warmup at least 0, not {repeats} and {warmup}")
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in rounds(range(warmup + repeats)):
        for name, run in cases.items():
            _wait()
            start = time.perf_counter()
            run()
            _wait()
            if number >= warmup:
                seconds[name].append(time.perf_counter() - start)
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


def peak_tensor_bytes(run: Callable[[], object], known: Iterable[Tensor] = ()) -> int:
    """The most bytes of tensors that `run` holds at once, besides the `known` ones (weights, inputs).

    On the CPU every tensor that comes into being is counted until it is freed, which gives the same
    figure on every machine; on a GPU it is what torch's allocator says.
    """
    if torch.cuda.is_available() and any(tensor.is_cuda for tensor in known):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    counted = _TensorBytes(known)
    with counted:
        run()
    return counted.peak


class _TensorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages of all tensors that operations return."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, object] = {tensor.untyped_storage()._cdata: None for tensor in known}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._live:
            self._live[key] = weakref.ref(storage, lambda _: self._gone(key, size))
            self.now += size
            self.peak = max(self.peak, self.now)

    def _gone(self, key: int, size: int) -> None:
        del self._live[key]
        self.now -= size


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


def random_batch(model: ReIDModel, batch: int, seed: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """Images {modality: (batch, 3, H, W)} of noise and cameras (batch,), on the device of the model."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    size = (batch, 3, *model.backbone.image_size)
    images = {name: torch.randn(size, generator=generator).to(device) for name in model.modalities}
    return images, torch.zeros(batch, dtype=torch.int64, device=device)


def embedder(model: ReIDModel, images: Mapping[str, Tensor], cameras: Tensor) -> Callable[[], object]:
    """A function that embeds the same batch again and again; the model must be in eval mode."""

    def run() -> object:
        with torch.inference_mode():
            return model(images, cameras)

    return run


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
