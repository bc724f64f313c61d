"""Everything a report says of one run, gathered from its folder; a run that was not evaluated is so now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.data.manifest import Manifest, Sample
from slimreid.errors import DataError
from slimreid.evaluation.query_gallery import Side, select_part
from slimreid.evaluation.reports.evaluate import Evaluation, evaluation_folder
from slimreid.evaluation.reports.feature_metrics import FeatureMetrics
from slimreid.inference.features.data import ModelData, open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load_trained
from slimreid.inference.trained_model import TrainedModel
from slimreid.profiling.cost import ModelSummary, summarise
from slimreid.runs.folder import RunFolder
from slimreid.runs.measure import fresh_evaluation
from slimreid.runs.starts import Start
from slimreid.visual.plots.embedding_map import Embeddings


@dataclass(frozen=True, eq=False)
class ReportRun:
    """One run, with what was measured of it."""

    name: str
    path: Path
    """As the user gave it: a run's folder or a model file."""
    loaded: TrainedModel
    data: ModelData
    evaluation: Evaluation
    folder: RunFolder
    metrics: tuple[Mapping[str, Any], ...]
    """Rows of metrics.jsonl; empty for a model without its run."""
    starts: tuple[Start, ...]
    """How the run was started and resumed."""

    @property
    def scores(self) -> FeatureMetrics:
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
        """Features of the gallery in all modalities, from the evaluation's cache where they are kept."""
        evaluation, gallery = self.evaluation, self.evaluation.gallery
        data, rows = select_part(self.data, evaluation.part)
        folder = evaluation_folder(self.loaded.path, self.data, evaluation.part)
        (found,) = extract_features(self.loaded, data, options=Extraction(cache=folder)).values()
        features = found.get(evaluation.main, np.searchsorted(rows, gallery.rows))
        return Embeddings(features, gallery.identities.tolist(), gallery.cameras.tolist())


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
    """One run, measured on `data` or on the data of its own run; raises `SlimReIDError` naming what is wrong.

    An evaluation that is there and belongs to the same weights and rows is used, another is made.
    """
    loaded = load_trained(path, None)
    opened = open_data(loaded, data)
    evaluation = fresh_evaluation(loaded, opened, missing=True)
    folder = RunFolder.of_model(loaded.path)
    return ReportRun(name, path, loaded, opened, evaluation, folder, folder.metrics(), folder.starts())
