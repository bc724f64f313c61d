"""Everything a report says of one run, gathered from its folder; a run that was not evaluated is so now."""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from slimreid.data.manifest import Manifest, Sample
from slimreid.errors import DataError
from slimreid.evaluation.data import ModelData, open_data
from slimreid.evaluation.evaluation import (
    JSON_NAME,
    Evaluation,
    Scores,
    evaluate_model,
    evaluation_folder,
    read_evaluation,
)
from slimreid.evaluation.features import extract_features
from slimreid.evaluation.parts import SPLITS_OF, Side
from slimreid.evaluation.writing import write_evaluation
from slimreid.files import relative_posix
from slimreid.loading import LoadedModel, choose_device, load
from slimreid.models.summary import ModelSummary, summarise
from slimreid.training.records import RUN_NAME
from slimreid.training.resume import METRICS_NAME, TIMING_NAME
from slimreid.visual.embedding_map import Embeddings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ReportRun:
    """One run, with what was measured of it."""

    name: str
    path: Path
    """As the user gave it: a run's folder or a model file."""
    loaded: LoadedModel
    data: ModelData
    evaluation: Evaluation
    metrics: tuple[Mapping[str, Any], ...]
    """Rows of metrics.jsonl; empty for a model without its run."""
    seconds: tuple[float, ...]
    """Of each epoch."""
    images_per_second: float | None
    """While training, median over epochs."""
    starts: tuple[Mapping[str, Any], ...]
    """How the run was started and gone on with, from run.json."""

    @property
    def scores(self) -> Scores:
        """Figures of the kind of feature to name if only one is named."""
        return self.evaluation.scores

    @property
    def manifest(self) -> Manifest:
        """The data that was evaluated."""
        return self.data.manifest

    @cached_property
    def summary(self) -> ModelSummary:
        """Parameters and cost."""
        return summarise(self.loaded.model)

    def samples(self, side: Side) -> list[Sample]:
        """The rows of the manifest behind one side of the evaluation."""
        return [self.manifest.samples[row] for row in side.rows.tolist()]

    def embeddings(self) -> Embeddings:
        """Features of the gallery in all spectra, from the evaluation's cache where they are kept."""
        evaluation = self.evaluation
        splits = SPLITS_OF[evaluation.part]
        rows = [i for i, s in enumerate(self.manifest.samples) if s.split in splits]
        chosen = self.manifest.with_samples(self.manifest.samples[i] for i in rows)
        data = replace(self.data, manifest=chosen)
        folder = evaluation_folder(self.loaded.path, self.data, evaluation.part)
        found = extract_features(self.loaded, data, cache=folder)[chosen.modalities]
        place = {row: i for i, row in enumerate(rows)}
        gallery = torch.tensor([place[row] for row in evaluation.gallery.rows.tolist()])
        return Embeddings(
            found.get(evaluation.main, gallery).numpy(),
            evaluation.gallery.identities.tolist(),
            evaluation.gallery.cameras.tolist(),
        )


def gather_runs(paths: Sequence[Path], data: Path | None = None) -> list[ReportRun]:
    """Runs with names that differ; raises `SlimReIDError` naming the run or file that cannot be used.

    Each is measured on `data`, or on the data of its own run. An evaluation that is there and belongs to the
    same weights and rows is used, another is made.
    """
    return [gather_run(path, name, data) for path, name in zip(paths, run_names(paths), strict=True)]


def run_names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths by which they differ; raises `DataError` for a run given twice."""
    parts = [(p.parent if p.suffix == ".safetensors" else p).resolve().parts for p in paths]
    for first, path in enumerate(parts):
        if path in parts[:first]:
            raise DataError(f"{paths[first]}: this run is given twice")
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(path[-length:]) for path in parts]
        if len(set(names)) == len(names):
            break
    return names


def gather_run(path: Path, name: str, data: Path | None = None) -> ReportRun:
    """One run; see `gather_runs`."""
    loaded = load(path, choose_device())
    opened = open_data(loaded, data)
    folder = loaded.path.parent
    timing = _json_lines(folder / TIMING_NAME)
    return ReportRun(
        name=name,
        path=path,
        loaded=loaded,
        data=opened,
        evaluation=fresh_evaluation(loaded, opened, data),
        metrics=_json_lines(folder / METRICS_NAME),
        seconds=tuple(float(row["seconds"]) for row in timing),
        images_per_second=statistics.median(row["images_per_second"] for row in timing) if timing else None,
        starts=_starts(folder / RUN_NAME),
    )


def fresh_evaluation(loaded: LoadedModel, opened: ModelData, data: Path | None = None) -> Evaluation:
    """The evaluation beside a model, with the missing-modality matrix; made and written where needed."""
    folder = evaluation_folder(loaded.path, opened)
    if (folder / JSON_NAME).is_file():
        try:
            found = read_evaluation(folder)
        except DataError as error:
            logger.warning("%s; it is made again", error)
        else:
            if _fits(found, loaded, opened):
                return found
    found = evaluate_model(loaded, data, missing=True, folder=folder)
    write_evaluation(found, folder)
    return found


def _fits(found: Evaluation, loaded: LoadedModel, data: ModelData) -> bool:
    """Whether an evaluation is of these weights and rows and has all that a report shows."""
    samples = data.manifest.samples
    same = found.fingerprint == loaded.fingerprint and found.modalities == data.manifest.modalities
    complete = bool(found.missing) and found.scores.result.top_index.shape[1] > 0
    return same and complete and all(_same_rows(side, samples) for side in (found.query, found.gallery))


def _same_rows(side: Side, samples: Sequence[Sample]) -> bool:
    rows = side.rows.tolist()
    return all(
        row < len(samples)
        and samples[row].identity == identity
        and {name: image.path for name, image in samples[row].images.items()} == images
        for row, identity, images in zip(rows, side.identities.tolist(), side.images, strict=True)
    )


def _json_lines(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Rows of a file of a run; none where it is absent. Raises `DataError` naming a broken line."""
    if not path.is_file():
        return ()
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON ({error}); remove it") from None
    return tuple(rows)


def _starts(path: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8"))["starts"])
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); it only tells how the run began: remove it") from None


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    near = relative_posix(path, Path.cwd())
    return path.as_posix() if near.startswith("../..") else near
