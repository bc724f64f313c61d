"""From the folder of a finished run to its record, evaluated first where that is due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.result import RANKS
from slimreid.evaluation.query_gallery import select_part
from slimreid.evaluation.reports.evaluate import (
    FOLDER,
    JSON_NAME,
    Evaluation,
    EvaluationOptions,
    evaluate_model,
    evaluation_folder,
    read_evaluation,
)
from slimreid.evaluation.reports.writing import write_evaluation
from slimreid.inference.features.cache import evaluation_key
from slimreid.inference.features.data import ModelData, open_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import MODEL_NAME
from slimreid.inference.similarity import feature_kinds
from slimreid.inference.trained_model import TrainedModel, architecture
from slimreid.json_files import json_digest, parse_json
from slimreid.profiling.cost import summarise
from slimreid.profiling.latency import Rounds, measure_interleaved, medians, noise_images
from slimreid.runs.folder import RunFolder
from slimreid.runs.history import selection_summary
from slimreid.runs.identity import deciding_options
from slimreid.runs.record import FeatureFigures, RunRecord, searched_data

logger = logging.getLogger(__name__)


def fresh_evaluation(
    loaded: LoadedModel, data: ModelData | None = None, *, missing: bool = False
) -> Evaluation:
    """The evaluation beside a model; made and written first where it is absent, partial or out of date.

    Args:
        loaded: The model.
        data: What to measure on; default: the data of its run.
        missing: Whether it must have the matrix of missing modalities.
    """
    data = data or open_data(loaded)
    folder = evaluation_folder(loaded.path, data)
    if (folder / JSON_NAME).is_file():
        try:
            found = read_evaluation(folder)
        except DataError as error:
            logger.warning("%s; it is made again", error)
        else:
            has_ranks = found.scores.result.top_index.shape[1] > 0
            has_all = set(feature_kinds(loaded)) <= set(found.features) and (found.missing or not missing)
            if has_ranks and has_all and _is_fresh(found, loaded, data):
                return found
    logger.info("evaluating %s", loaded.path.parent)
    made = evaluate_model(loaded, data, EvaluationOptions(missing=missing), Extraction(cache=folder))
    write_evaluation(made, folder)
    return made


def _is_fresh(found: Evaluation, loaded: LoadedModel, data: ModelData) -> bool:
    """Whether nothing has changed that decides the figures: weights, rows, labels, files, options."""
    chosen, _ = select_part(data, found.part)
    return found.key == evaluation_key(loaded, chosen, found.protocol, found.cameras, found.skip_broken)


def run_record(
    path: Path,
    *,
    data: Path | None = None,
    name: str | None = None,
    label: str = "",
    missing: bool = False,
    source: Mapping[str, Any] | None = None,
    loaded: LoadedModel | None = None,
) -> RunRecord:
    """The record of a run or model file, evaluated first if it is not yet.

    Args:
        path: Run, checkpoint, model file or exported model.
        data: Manifest to measure on; None = that of the run.
        name: Name of the record; None = the path.
        label: Label of the row in tables; '' = the name.
        missing: Whether every subset of the modalities is needed, too.
        source: Facts to add to where the record comes from.
        loaded: The model of `path`, where it is loaded already.

    Raises:
        ModelError, DataError, ConfigError: Naming the file.
    """
    loaded = loaded or load(path)
    run = RunFolder.of_model(loaded.path)
    starts = run.starts()
    evaluation = fresh_evaluation(loaded, open_data(loaded, data), missing=missing)
    record = _record(name or path.as_posix(), evaluation, loaded)
    return replace(
        record,
        dataset=starts[-1].dataset if starts else "",
        seconds={"train": round(run.train_seconds, 1), "evaluate": round(evaluation.seconds, 1)},
        missing={kind: matrix.to_dict() for kind, matrix in evaluation.missing.items()},
        selection=selection_summary(run.selection()),
        source={**record.source, **(starts[-1].facts() if starts else {}), **(source or {})},
        label=label or record.name,
    )


def evaluation_record(path: Path) -> tuple[RunRecord, LoadedModel | None]:
    """The record of an evaluation as it was written, and its model where that is still there.

    Without the model its options, parameters and cost are not known. Raises `DataError` naming the file.
    """
    evaluation = read_evaluation(path)
    loaded = None
    if evaluation.model.is_file():
        loaded = load(evaluation.model)
        if loaded.fingerprint != evaluation.fingerprint:
            logger.warning("%s: the model has other weights now; its figures are of the old ones", path)
            loaded = None
        elif not _still_holds(evaluation, loaded):
            logger.warning(
                "%s: the data has changed since, or is gone; 'slimreid evaluate' measures again", path
            )
    # Without the usual names of its file and folder, which leaves that of its run.
    folder = path.parent if path.name == JSON_NAME else path
    name = (folder.parent if folder.name == FOLDER else folder).as_posix()
    return _record(name, evaluation, loaded), loaded


def is_evaluation(path: Path) -> bool:
    """Whether a person means an evaluation by this: its file, or its folder, whatever they are called."""
    if path.is_dir():
        return (path / JSON_NAME).is_file() and not (path / MODEL_NAME).is_file()
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and {"key", "query", "gallery"} <= set(values)


def _still_holds(evaluation: Evaluation, loaded: LoadedModel) -> bool:
    try:
        return _is_fresh(evaluation, loaded, open_data(loaded, evaluation.manifest))
    except (DataError, ConfigError):
        return False


def _record(name: str, evaluation: Evaluation, loaded: LoadedModel | None) -> RunRecord:
    """What an evaluation tells, and its model, without what only the folder of a run knows."""
    summary = summarise(architecture(loaded)) if loaded else None
    options = deciding_options(loaded.config) if loaded else {}
    features = {}
    for kind, scores in evaluation.features.items():
        result = scores.result
        cmc = {rank: result.rank(rank) for rank in RANKS if rank <= len(result.cmc)}
        features[kind] = FeatureFigures(result.map, result.minp, cmc, result.average_precision)
    if loaded and not isinstance(loaded, TrainedModel):  # no other seed of the run it came from
        options["exported"] = loaded.precision
    return RunRecord(
        name=name,
        seed=loaded.config.seed if loaded else 0,
        options=options,
        dataset="",
        data_name=evaluation.dataset,
        data=searched_data(evaluation.query, evaluation.gallery),
        select_on=evaluation.select_on,
        epoch=evaluation.epoch,
        protocol=evaluation.protocol,
        modalities=evaluation.modalities,
        origin=evaluation.origin,
        query_ids=evaluation.query.identities,
        gallery=len(evaluation.gallery),
        features=features,
        parameters=summary.parameters if summary else None,
        gflops=summary.gflops if summary else None,
        source={"options_hash": json_digest(options), "weights": evaluation.fingerprint},
        label=name,
    )


def measure_speeds(
    models: Mapping[str, LoadedModel], batch: int = 8, repeats: int = 9, rounds: Rounds = iter
) -> dict[str, float]:
    """Images per second of each model, forward passes on noise taking turns; medians."""
    cases: dict[str, Callable[[], object]] = {
        name: partial(loaded.features, noise_images(loaded.modalities, loaded.config.transforms.size, batch))
        for name, loaded in models.items()
    }
    seconds = medians(measure_interleaved(cases, repeats, rounds=rounds))
    return {name: batch * len(models[name].modalities) / seconds[name] for name in models}


def first_of_each(records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """One record per label."""
    found: dict[str, RunRecord] = {}
    for record in records:
        found.setdefault(record.label, record)
    return found
