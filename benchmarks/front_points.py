"""What stands on the front: ways of reducing the tokens of a trained model, and what is measured of each."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tome
from slimreid.config.files import load_config
from slimreid.config.model import BOTH
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.result import PairedDifference, RetrievalResult, paired_bootstrap
from slimreid.evaluation.reports.evaluate import EvaluationOptions, evaluate_model
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.models.reid_model import ReIDModel
from slimreid.profiling.cost import summarise
from slimreid.profiling.latency import embedder, measure_interleaved, median_ratios, medians, random_batch
from slimreid.token_reduction import InBackboneReducer

OURS, RANDOM, ATTENTION, TOME = "ours", "random dropping", "class attention", "token merging"
METHODS = (OURS, RANDOM, ATTENTION, TOME)
CHOICES = {
    OURS: (),
    RANDOM: ("score_terms=[random]", "dropped=leftover"),
    ATTENTION: ("score_terms=[attention]", "dropped=leftover"),
}
"""Options of model.in_backbone for methods that drop patches at stages; ours are the defaults."""
UNSLIMMED = "unslimmed"
TRAINED, FREE = "trained", "training-free"
TOME_NAME = "tome.json"
"""Beside a model that was trained with token merging: r and metric, which its file does not know."""

Install = Callable[[ReIDModel], ReIDModel]


@dataclass(frozen=True)
class Way:
    """A way of reducing tokens, at one strength."""

    method: str
    strength: str
    install: Install
    """Changes a model in place and returns it."""


def stage_way(method: str, schedule: Sequence[Sequence[float]], options: Sequence[str] = ()) -> Way:
    """Patches dropped at the stages of a schedule, without anything learned.

    `options` are `key=value` pairs of model.in_backbone on top, for ours.
    """
    text = json.dumps([list(pair) for pair in schedule])
    given = [f"model.in_backbone.{o}" for o in (*CHOICES[method], f"schedule={text}", *options)]
    reduction = load_config(overrides=["model.reduction=in_backbone", *given]).model.in_backbone

    def install(model: ReIDModel) -> ReIDModel:
        if model.in_backbone is not None:
            raise ConfigError("the model reduces tokens in its backbone already; give one that does not")
        model.in_backbone = InBackboneReducer(model.backbone, model.modalities, reduction).eval()
        return model

    return Way(method, shown_schedule(schedule), install)


def shown_schedule(schedule: Sequence[Sequence[float]]) -> str:
    """A schedule in a few letters: share @ position, ..."""
    return ", ".join(f"{share:g} @ {position:g}" for position, share in schedule)


def tome_way(r: int, metric: tome.Metric) -> Way:
    """r tokens merged in every block."""
    return Way(TOME, f"r = {r} by {metric}", lambda model: tome.install(model, r, metric))


def tome_counts(model: ReIDModel, shares: Sequence[float]) -> list[int]:
    """Tokens to merge per block, so that about the given shares of the patches are gone in the end."""
    height, width = model.backbone.grid
    depth = model.backbone.config.depth
    return list(dict.fromkeys(max(1, round(share * height * width / depth)) for share in shares))


def method_of(loaded: LoadedModel) -> str:
    """Which method a trained model belongs to."""
    if (loaded.path.parent / TOME_NAME).is_file():
        return TOME
    options = loaded.config.model.in_backbone
    if loaded.model.in_backbone is None:
        return UNSLIMMED
    if options.dropped == "merge":
        return OURS
    return {("random",): RANDOM, ("attention",): ATTENTION}.get(options.score_terms, OURS)


def load_trained(path: Path) -> LoadedModel:
    """A trained model, with token merging if it was trained so."""
    loaded = load(path)
    beside = loaded.path.parent / TOME_NAME
    if beside.is_file():
        tome.install(loaded.model, **json.loads(beside.read_text(encoding="utf-8")))
    return loaded


@dataclass(frozen=True)
class Speed:
    """How long a model takes next to the unslimmed one."""

    ratio: float
    """How many times as fast."""
    samples_per_second: float
    gflops: float


def measure_speed(unslimmed: ReIDModel, model: ReIDModel, batch: int, repeats: int) -> Speed:
    """Forward passes of both in turn; the ratio is the median of those within a repetition."""
    images, cameras = random_batch(unslimmed, batch)
    cases = {name: embedder(m, images, cameras) for name, m in ((UNSLIMMED, unslimmed), ("this", model))}
    seconds = measure_interleaved(cases, repeats)
    ratio = median_ratios(seconds, UNSLIMMED)["this"]
    return Speed(ratio, batch / medians(seconds)["this"], summarise(model).gflops)


def retrieve(loaded: LoadedModel, manifest: Path | None) -> RetrievalResult:
    """How well a model retrieves in the test set, by all its features."""
    return evaluate_model(
        loaded, manifest, EvaluationOptions(features=BOTH), Extraction(show_progress=False)
    ).scores.result


def slimmed_by(loaded: LoadedModel, way: Way) -> LoadedModel:
    """A copy of a trained model, slimmed."""
    return replace(loaded, model=way.install(copy.deepcopy(loaded.model)).eval())


@dataclass(frozen=True)
class Measured:
    """One run: what it retrieves, and the same of the unslimmed run it is compared with."""

    result: RetrievalResult
    reference: RetrievalResult
    speed: Speed


def over_seeds(found: Sequence[Measured]) -> tuple[RetrievalResult, RetrievalResult]:
    """(reference, result) with the mean over runs of the average precision of each query."""
    means = []
    for of in ("reference", "result"):
        results = [getattr(one, of) for one in found]
        for other in results[1:]:
            paired_bootstrap(results[0], other, samples=2)  # complains of other queries
        mean = np.mean([one.average_precision for one in results], axis=0)
        means.append(replace(results[0], average_precision=mean))
    return means[0], means[1]


def point(kind: str, method: str, strength: str, found: Sequence[Measured], **more: Any) -> dict[str, Any]:
    """All figures of one point, ready for JSON; several runs are seeds of one."""
    reference, result = over_seeds(found)
    difference: PairedDifference | None = None
    if len(np.unique(reference.query_ids[reference.valid])) > 1:
        difference = paired_bootstrap(reference, result)
    maps = [one.result.map for one in found]
    return {
        "kind": kind,
        "method": method,
        "strength": strength,
        "map": float(np.mean(maps)),
        "maps": maps,
        "rank1": float(np.mean([one.result.rank(1) for one in found])),
        "unslimmed_map": float(np.mean([one.reference.map for one in found])),
        "difference": difference.to_dict() if difference else None,
        "ratio": float(np.median([one.speed.ratio for one in found])),
        "samples_per_second": float(np.median([one.speed.samples_per_second for one in found])),
        "gflops": found[0].speed.gflops,
        **more,
    }


def environment(batch: int, repeats: int) -> dict[str, Any]:
    """What speeds depend on."""
    return {
        "batch": batch,
        "repeats": repeats,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
