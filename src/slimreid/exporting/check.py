"""How an exported model compares with the model it came from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.errors import DataError, SlimReIDWarning
from slimreid.evaluation.metrics.bootstrap import PairedDifference, paired_bootstrap
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.exporting.graphs import SubsetModel
from slimreid.exporting.samples import CheckSamples, noise_samples
from slimreid.inference.exported_card import Subset
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.inference.trained_model import TrainedModel
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import BOTH
from slimreid.progress import progress

Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Mapping[str, NDArray[np.float32]], NDArray[np.int64]], Arrays]
"""Images by modality and cameras -> outputs by name, as those of a graph."""

BATCHES = (1, 2, 3, 33)
"""Sizes of the batches that are compared."""
LEAST_COSINE = 0.9999
"""What float32 must reach where both keep the same patches."""
MOST_OTHER = 0.02
"""Share of samples that may be further apart in float32, because rounding turns a near tie of patches round;
the same happens to the original from one batch size to another."""
_CHUNK = 32


@dataclass(frozen=True)
class Agreement:
    """Features of the exported model against those of the original, for one subset of the modalities."""

    subset: Subset
    samples: int
    noise: bool
    """Whether the samples were noise, because none had these modalities."""
    cosine: float
    """The smallest of all samples and kinds of features."""
    cosine_same_patches: float
    """The smallest of the samples of which both keep the same patches; 1 where there is none."""
    far: float
    """Share of samples whose cosine is below that required of float32."""
    kept: tuple[float, ...]
    """Share of kept patches that both keep, per stage of token reduction."""


@dataclass(frozen=True)
class Accuracy:
    """Retrieval by the original and by the exported model, on the same samples."""

    feature: str
    queries: int
    gallery: int
    map: tuple[float, float]
    """mAP of the original and of the exported model, 0 to 1."""
    rank1: tuple[float, float]
    difference: PairedDifference | None
    """mAP gained, with its interval over identities; None where there are fewer than two."""

    @property
    def loss(self) -> float:
        """Points of mAP that the exported model loses."""
        return 100 * (self.map[0] - self.map[1])


@dataclass(frozen=True)
class Check:
    """All figures of the check."""

    source: str
    """What samples it was made on."""
    agreements: tuple[Agreement, ...]
    accuracy: Accuracy | None
    """None where the samples have no labels."""

    @property
    def cosine(self) -> float:
        """The smallest cosine of all."""
        return min(each.cosine for each in self.agreements)

    @property
    def cosine_same_patches(self) -> float:
        """The same over samples of which both models keep the same patches."""
        return min(each.cosine_same_patches for each in self.agreements)

    @property
    def kept(self) -> tuple[float, ...]:
        """Share of kept patches that both keep, per stage, in the subset where it is smallest."""
        return tuple(min(shares) for shares in zip(*(each.kept for each in self.agreements), strict=True))

    def faults(self, precision: str, max_loss: float) -> list[str]:
        """Why the exported model must not be used; empty if it may be."""
        found = []
        if precision == "float32" and self.cosine_same_patches < LEAST_COSINE:
            found.append(
                f"features differ from those of the model: cosine {self.cosine_same_patches:.6f}, "
                f"and float32 must reach {LEAST_COSINE}"
            )
        far = float(np.mean([each.far for each in self.agreements]))
        if precision == "float32" and far > MOST_OTHER:
            found.append(
                f"{far:.1%} of the samples have a cosine below {LEAST_COSINE}, "
                f"and in float32 at most {MOST_OTHER:.0%} may"
            )
        if self.accuracy is not None and self.accuracy.loss > max_loss:
            found.append(
                f"mAP falls by {self.accuracy.loss:.2f} points, from {100 * self.accuracy.map[0]:.2f} to "
                f"{100 * self.accuracy.map[1]:.2f}, and --max-loss is {max_loss:g}"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = asdict(self)
        values |= {"cosine": self.cosine, "cosine_same_patches": self.cosine_same_patches, "kept": self.kept}
        if self.accuracy is not None:
            values["accuracy"]["loss_points"] = self.accuracy.loss
        return values


def torch_runner(loaded: TrainedModel) -> Runner:
    """The original model in float32 on its device."""
    wrapper = SubsetModel(loaded.model.eval())
    device = next(loaded.model.parameters()).device

    def run(images: Mapping[str, NDArray[np.float32]], cameras: NDArray[np.int64]) -> Arrays:
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


def check_agreement(loaded: TrainedModel, exported: Runner, samples: CheckSamples) -> tuple[Agreement, ...]:
    """Compare both models in every subset of the modalities, in batches of 1, 2, 3 and 33."""
    original = torch_runner(loaded)
    subsets = all_subsets(loaded.modalities)
    return tuple(
        _agreement(original, exported, subset, samples, loaded)
        for subset in progress(subsets, "checking features", len(subsets))
    )


def _agreement(
    original: Runner, exported: Runner, subset: Subset, samples: CheckSamples, loaded: TrainedModel
) -> Agreement:
    rows = samples.have(subset)
    noise = not len(rows)
    if noise:
        samples = noise_samples(loaded)
        rows = np.arange(len(samples))
    pairs, start = [], 0
    for size in BATCHES:
        some = np.resize(rows[start:], size) if len(rows) > start else np.resize(rows, size)
        start += size
        images, cameras = _take(samples, subset, some)
        pairs.append((original(images, cameras), exported(images, cameras)))
    first, second = (
        {name: np.concatenate([p[k][name] for p in pairs]) for name in pairs[0][0]} for k in (0, 1)
    )
    features = [name for name in first if not name.startswith("kept_")]
    stages = [name for name in first if name.startswith("kept_")]
    cosines = np.min([_cosines(first[name], second[name]) for name in features], axis=0)
    columns = [m for m, name in enumerate(loaded.modalities) if name in subset]
    same = [_same_patches(first[name][:, columns], second[name][:, columns]) for name in stages]
    alike = np.all([each.all(axis=1) for each in same], axis=0) if same else np.ones(len(cosines), bool)
    return Agreement(
        subset=subset,
        samples=min(len(rows), sum(BATCHES)),
        noise=noise,
        cosine=float(cosines.min()),
        cosine_same_patches=float(cosines[alike].min(initial=1.0)),
        far=float((cosines < LEAST_COSINE).mean()),
        kept=tuple(float(each.mean()) for each in same),
    )


def _take(
    samples: CheckSamples, subset: Subset, rows: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.int64]]:
    return {name: samples.images[name][rows] for name in subset}, samples.camera[rows]


def _cosines(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Cosines (n,) of the rows of two (n, D)."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    found: NDArray[np.float64] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return found


def _same_patches(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Share (n, m) of the kept patches (n, m, K) of the first that the second keeps too, in any order."""
    found: NDArray[np.float64] = (first[..., :, None] == second[..., None, :]).any(-1).mean(-1)
    return found


def all_features(run: Runner, samples: CheckSamples, kinds: Sequence[str], what: str) -> Arrays:
    """Features (n, D) of all samples, each seen in what it has."""
    found: Arrays = {}
    for subset, rows in progress(list(_groups(samples)), what):
        features = run(*_take(samples, subset, rows))
        for kind in kinds:
            if kind not in found:
                found[kind] = np.zeros((len(samples), features[kind].shape[1]), np.float32)
            found[kind][rows] = features[kind]
    return found


def _groups(samples: CheckSamples) -> Iterator[tuple[Subset, NDArray[np.int64]]]:
    """Samples that have the same modalities, in chunks."""
    names = np.array(list(samples.images))
    patterns, number = np.unique(samples.present, axis=0, return_inverse=True)
    for at, pattern in enumerate(patterns):
        rows = np.flatnonzero(number.reshape(-1) == at)
        for start in range(0, len(rows), _CHUNK):
            yield tuple(names[pattern].tolist()), rows[start : start + _CHUNK]


def search_result(
    loaded: TrainedModel, features: NDArray[Any], samples: CheckSamples
) -> RetrievalResult | None:
    """Retrieval among labelled samples by features (n, D) of both branches; None where it means nothing."""
    if samples.labels is None or samples.query is None or samples.gallery is None:
        return None
    similarity = loaded.similarity(BOTH)
    query, gallery = (
        similarity.prepare(features[rows], samples.present[rows]) for rows in (samples.query, samples.gallery)
    )
    try:
        return evaluate_scores(SimilarityScores(similarity, query, gallery), samples.labels)
    except DataError:  # no query has a right answer
        return None


def compare_results(
    first: RetrievalResult | None, second: RetrievalResult | None, samples: CheckSamples
) -> Accuracy | None:
    """The figures of two searches of the same samples, by the original and by the exported model."""
    if first is None or second is None or samples.query is None or samples.gallery is None:
        return None
    several = len(np.unique(first.query_ids[first.valid])) > 1
    return Accuracy(
        feature=BOTH,
        queries=len(samples.query),
        gallery=len(samples.gallery),
        map=(first.map, second.map),
        rank1=(float(first.cmc[0]), float(second.cmc[0])),
        difference=paired_bootstrap(first, second) if several else None,
    )
