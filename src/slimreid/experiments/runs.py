"""From the folder of a finished run to its record."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slimreid.errors import ModelError
from slimreid.evaluation.evaluation import (
    JSON_NAME,
    Evaluation,
    evaluate_model,
    evaluation_folder,
    read_evaluation,
)
from slimreid.evaluation.features import feature_kinds
from slimreid.evaluation.writing import write_evaluation
from slimreid.experiments.plan import deciding_options, options_hash
from slimreid.experiments.record import RunRecord, record_from_evaluation
from slimreid.loading import LoadedModel, load
from slimreid.models.summary import summarise
from slimreid.profiling import Rounds, embedder, measure_interleaved, medians, random_batch
from slimreid.training.records import RUN_NAME
from slimreid.training.resume import TIMING_NAME
from slimreid.training.selection_watch import read_selection, selection_summary

logger = logging.getLogger(__name__)

_KEPT_FACTS = ("git_commit", "versions", "threads", "processes", "device", "platform")


def evaluated(loaded: LoadedModel, *, missing: bool = False) -> Evaluation:
    """The evaluation beside a model, made first where it is absent, partial or of other weights."""
    folder = evaluation_folder(loaded.path)
    if (folder / JSON_NAME).is_file():
        found = read_evaluation(folder)
        complete = set(feature_kinds(loaded.model)) <= set(found.features)
        if found.fingerprint == loaded.fingerprint and complete and (found.missing or not missing):
            return found
    logger.info("evaluating %s", loaded.path.parent)
    made = evaluate_model(loaded, missing=missing, folder=folder)
    write_evaluation(made, folder)
    return made


def run_record(
    path: Path,
    *,
    name: str | None = None,
    label: str = "",
    missing: bool = False,
    source: Mapping[str, Any] | None = None,
    loaded: LoadedModel | None = None,
) -> RunRecord:
    """The record of a run or model file, evaluated first if it is not yet.

    `source` adds to what is known of where it comes from. Raises `ModelError`, `DataError` or
    `ConfigError` naming the file.
    """
    loaded = loaded or load(path)
    facts = _facts(loaded.path.parent / RUN_NAME)
    evaluation = evaluated(loaded, missing=missing)
    summary = summarise(loaded.model)
    options = deciding_options(loaded.config)
    extra = dict(source or {})
    kept = {key: facts[key] for key in _KEPT_FACTS if key in facts}
    return record_from_evaluation(
        name or path.as_posix(),
        evaluation,
        seed=loaded.config.seed,
        options=options,
        dataset=str(facts.get("dataset", "")),
        parameters=summary.parameters,
        gflops=summary.gflops,
        seconds={"train": round(_train_seconds(loaded.path.parent), 1)},
        source={
            "options_hash": options_hash(options),
            "weights": loaded.fingerprint,
            **kept,
            **extra,
        },
        label=label,
        selection=selection_summary(read_selection(loaded.path.parent)),
    )


def _facts(path: Path) -> dict[str, Any]:
    """What a run's file says about its last start; empty for a model without one."""
    if not path.is_file():
        return {}
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["starts"][-1]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{path}: damaged ({error!r}); remove it, it only tells how the run began") from None
    return facts


def _train_seconds(run: Path) -> float:
    """Seconds of all epochs, evaluations included."""
    return sum(epoch_seconds(run))


def epoch_seconds(run: Path) -> list[float]:
    """Seconds of each epoch that a run has finished so far."""
    try:
        lines = (run / TIMING_NAME).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(float(json.loads(line)["seconds"]))
        except (ValueError, KeyError, TypeError):  # the last line, while it is being written
            break
    return found


def measure_speeds(
    models: Mapping[str, LoadedModel], batch: int = 8, repeats: int = 9, rounds: Rounds = iter
) -> dict[str, float]:
    """Images per second of each model, forward passes on noise taking turns; medians."""
    cases: dict[str, Callable[[], object]] = {
        name: embedder(loaded.model, *random_batch(loaded.model, batch)) for name, loaded in models.items()
    }
    seconds = medians(measure_interleaved(cases, repeats, rounds=rounds))
    return {name: batch * len(models[name].modalities) / seconds[name] for name in models}


def first_of_each(records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """One record per label."""
    found: dict[str, RunRecord] = {}
    for record in records:
        found.setdefault(record.label, record)
    return found
