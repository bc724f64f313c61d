"""Cost, latency and memory of a model in one object."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slimreid.errors import ConfigError
from slimreid.inference.exported_model import ExportedModel
from slimreid.inference.trained_model import architecture
from slimreid.models.reid_model import ReIDModel
from slimreid.profiling.cost import ModelSummary, summarise
from slimreid.profiling.latency import Rounds, embedder, measure_interleaved, noise_images, random_batch


@dataclass(frozen=True)
class BatchProfile:
    """What a forward pass of one batch takes."""

    batch: int
    """Samples in the batch, each with all modalities."""
    p50: float
    """Median seconds of a forward pass."""
    p95: float
    """Seconds that 95 % of the repetitions stay under."""
    samples_per_second: float
    images_per_second: float
    """A sample has one image per modality."""
    peak_bytes: int | None
    """Most bytes of tensors at once, besides weights and inputs; None where that is not known."""


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
    engine: str = "torch"
    """What runs the model."""
    precision: str = "fp32"
    """Number format of the forward pass."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **vars(self),
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
    _check_batches(batches)
    was_training = model.training
    model.eval()
    try:
        passes = {str(batch): embedder(model, *random_batch(model, batch)) for batch in batches}
        seconds = measure_interleaved(passes, repeats, rounds=rounds)
        state = [*model.parameters(), *model.buffers()]
        rows = []
        for batch in batches:
            images, cameras = random_batch(model, batch)
            run = embedder(model, images, cameras)
            peak = peak_tensor_bytes(run, [*state, *images.values(), cameras])
            rows.append(_times(batch, len(model.modalities), seconds[str(batch)], peak))
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


def profile_exported(
    loaded: ExportedModel, batches: Sequence[int], repeats: int = 20, rounds: Rounds = iter
) -> Profile:
    """Measure an exported model with all its modalities at the given batch sizes, in turn.

    Parameters and multiply-adds are those of the model it came from. Raises `ConfigError` as `profile_model`.
    """
    _check_batches(batches)
    names, size = loaded.modalities, loaded.config.transforms.size
    passes = {str(batch): partial(loaded.features, noise_images(names, size, batch)) for batch in batches}
    seconds = measure_interleaved(passes, repeats, rounds=rounds)
    return Profile(
        summary=summarise(architecture(loaded)),
        weight_bytes=loaded.weight_bytes,
        batches=tuple(_times(batch, len(names), seconds[str(batch)]) for batch in batches),
        modalities=names,
        image_size=size,
        device="cpu",
        threads=loaded.engine.threads,
        repeats=repeats,
        engine="onnxruntime",
        precision=loaded.exported.precision,
    )


def _check_batches(batches: Sequence[int]) -> None:
    if not batches or min(batches) < 1:
        raise ConfigError(f"batch sizes must be at least 1, not {', '.join(map(str, batches)) or 'none'}")


def _times(batch: int, modalities: int, seconds: Sequence[float], peak: int | None = None) -> BatchProfile:
    """What the repetitions say of a batch of samples with so many modalities each."""
    p50, p95 = (float(value) for value in np.quantile(seconds, [0.5, 0.95]))
    return BatchProfile(batch, p50, p95, batch / p50, batch * modalities / p50, peak)


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
