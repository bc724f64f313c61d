"""Features of an exported model against those of the model it came from, sample by sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.arrays import Doubles, Floats, Ints
from slimreid.errors import SlimReIDWarning
from slimreid.exporting.graphs import KEPT, SubsetModel
from slimreid.exporting.samples import CheckSamples, noise_samples
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.inference.similarity import Subset
from slimreid.inference.trained_model import TrainedModel
from slimreid.modalities import all_subsets
from slimreid.progress import progress

Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Mapping[str, Floats], Ints], Arrays]
"""Images by modality and cameras -> outputs by name, as those of a graph."""

BATCHES = (1, 2, 3, 33)
"""Sizes of the batches that are compared."""
LEAST_COSINE = 0.9999
"""What float32 must reach, in every sample."""
ROUNDING = 1e-5
"""Relative change of pixels that counts as rounding: about a thousandth of a grey level."""
_COPIES = 32
"""Times that an image is changed by rounding, to see a near tie of patches broken either way."""
_MOST_TIES = 4
"""Samples of a subset that are looked at again; where more are far off, the reason is not ties."""


@dataclass(frozen=True)
class Agreement:
    """Features of the exported model against those of the original, for one subset of the modalities."""

    subset: Subset
    samples: int
    noise: bool
    """Whether the samples were noise, because none had these modalities."""
    cosine: float
    """The smallest of all samples and kinds of features, near ties of patches broken alike; see `_tied`."""
    mean: float
    """The mean over the samples, of the smallest over the kinds of features."""
    ties: int
    """Samples in which rounding broke a near tie of patches the other way."""
    cosine_as_is: float
    """The smallest with ties as they were broken; equal to `cosine` where there are none."""
    kept: tuple[float, ...]
    """Share of kept patches that both keep, per stage of token reduction."""


def torch_runner(loaded: TrainedModel) -> Runner:
    """The original model in float32 on its device."""
    wrapper = SubsetModel(loaded.model.eval())
    device = next(loaded.model.parameters()).device

    def run(images: Mapping[str, Floats], cameras: Ints) -> Arrays:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SlimReIDWarning)  # cameras may be unknown: both get the mean one
            found = wrapper(
                {name: torch.from_numpy(x).to(device) for name, x in images.items()},
                torch.from_numpy(cameras).to(device),
            )
        return {name: value.cpu().numpy() for name, value in found.items()}

    return run


def engine_runner(engine: OnnxEngine) -> Runner:
    """The exported model."""
    outputs = (*engine.card.sizes, *engine.card.stages)
    return lambda images, cameras: engine.run(images, cameras, outputs)


def check_agreement(
    loaded: TrainedModel, exported: Runner, samples: CheckSamples, *, ties: bool = True
) -> tuple[Agreement, ...]:
    """Compare both models in every subset of the modalities, in batches of 1, 2, 3 and 33.

    With `ties` a sample that is far off is looked at again: rounding may have broken a near tie of patches.
    """
    original = torch_runner(loaded)
    subsets = all_subsets(loaded.modalities)
    return tuple(
        _agreement(original, exported, subset, samples, loaded, ties)
        for subset in progress(subsets, "checking features", len(subsets))
    )


def _agreement(
    original: Runner,
    exported: Runner,
    subset: Subset,
    samples: CheckSamples,
    loaded: TrainedModel,
    ties: bool,
) -> Agreement:
    rows = samples.have(subset)
    noise = not len(rows)
    if noise:
        samples = noise_samples(loaded)
        rows = np.arange(len(samples))
    chosen = np.resize(rows, sum(BATCHES))
    batches = np.split(chosen, np.cumsum(BATCHES)[:-1])
    first, second = (
        _joined([run(*samples.take(subset, some)) for some in batches]) for run in (original, exported)
    )
    smallest = _smallest_cosines(first, second)
    alike = smallest.copy()
    far = np.flatnonzero(smallest < LEAST_COSINE)
    for at in far if ties and len(far) <= _MOST_TIES else ():
        other = {name: value[[at]] for name, value in second.items()}
        alike[at] = max(smallest[at], _tied(original, other, *samples.take(subset, chosen[[at]])))
    columns = [m for m, name in enumerate(loaded.modalities) if name in subset]
    kept = {name: value[:, columns] for name, value in first.items() if name.startswith(KEPT)}
    return Agreement(
        subset=subset,
        samples=min(len(rows), sum(BATCHES)),
        noise=noise,
        cosine=float(alike.min()),
        mean=float(alike.mean()),
        ties=int((alike[far] >= LEAST_COSINE).sum()),
        cosine_as_is=float(smallest.min()),
        kept=tuple(float(_same_patches(x, second[name][:, columns]).mean()) for name, x in kept.items()),
    )


def _tied(original: Runner, found: Arrays, images: Mapping[str, Floats], cameras: Ints) -> float:
    """Cosine of the exported model's features of one sample to the original's, near ties broken alike.

    Where two patches score alike, rounding decides which is kept, and the feature jumps: in torch too, from
    one batch size to another. So the original sees the image again and again, each time changed by rounding,
    and the nearest of its features counts. An exported model that computes anything else stays far off.
    """
    rng = np.random.default_rng(0)
    moved = {
        name: image * (1 + ROUNDING * rng.uniform(-1, 1, (_COPIES, *image.shape[1:]))).astype(np.float32)
        for name, image in images.items()
    }
    again = original(moved, np.repeat(cameras, _COPIES))
    return float(_smallest_cosines(again, {n: np.repeat(x, _COPIES, 0) for n, x in found.items()}).max())


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """Outputs of several batches as those of one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _smallest_cosines(first: Arrays, second: Arrays) -> Doubles:
    """The smallest over the kinds of features, for each sample (n,)."""
    found: Doubles = np.min(
        [cosines(first[name], second[name]) for name in first if not name.startswith(KEPT)], axis=0
    )
    return found


def cosines(first: NDArray[Any], second: NDArray[Any]) -> Doubles:
    """Cosines (n,) of the rows of two (n, D); −1 where one of them is not a number, or null."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return np.where(np.isfinite(found), found, -1.0)


def _same_patches(first: NDArray[Any], second: NDArray[Any]) -> Doubles:
    """Share (n, m) of the kept patches (n, m, K) of the first that the second keeps too, in any order."""
    found: Doubles = (first[..., :, None] == second[..., None, :]).any(-1).mean(-1)
    return found
