"""`slimreid evaluate`: how well a trained model retrieves."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from slimreid.cli.console import console, print_facts, say, table
from slimreid.cli.options.measuring import EvaluateOptions
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.rerank import KReciprocal
from slimreid.evaluation.reports.evaluate import (
    JSON_NAME,
    Evaluation,
    EvaluationOptions,
    evaluate_model,
    evaluation_folder,
    read_evaluation,
)
from slimreid.evaluation.reports.thresholds import Threshold, thresholds_of
from slimreid.evaluation.reports.writing import FIGURES, dump, facts, figures, sheets, write_evaluation
from slimreid.extras import explain_missing
from slimreid.files import check_writable, write_text
from slimreid.inference.embedding_sets.card import SET_CARD_NAME
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import Subset
from slimreid.modalities import all_subsets, parse_subset

MOST_COLUMNS = 13
"""Wider tables are left to the files: a terminal would break their lines."""


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate retrieval with a trained model, on its own data or on other data."""
    if (options.model / SET_CARD_NAME).is_file():
        _evaluate_embeddings(options)
        return
    loaded = load(options.model, options.device)
    data = open_data(loaded, options.data)
    folder = options.out or evaluation_folder(loaded.path, data, options.split)
    check_writable(folder / JSON_NAME)
    evaluation = evaluate_model(
        loaded,
        data,
        EvaluationOptions(
            features=options.feature,
            missing=options.missing == "all",
            rerank=_rerank(options) if options.rerank else None,
            protocol=options.protocol,
            part=options.split,
            thresholds=_thresholds(options, loaded, data.manifest.modalities),
        ),
        Extraction(
            cameras=options.camera_names,
            batch=options.batch,
            workers=options.workers,
            cache=None if options.no_cache else folder,
            skip_broken=options.skip_broken or None,
        ),
    )
    files = write_evaluation(evaluation, folder)
    print_evaluation(evaluation)
    say(f"written: {', '.join(map(str, files))}")


def _evaluate_embeddings(options: EvaluateOptions) -> None:
    """Evaluate a folder of embeddings, in bounded memory."""
    used = ("model", "protocol", "out", "memory")
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name not in used and value != each.default and value != []:
            raise ConfigError(
                f"--{each.name.replace('_', '-')} cannot be used with a folder of embeddings: it was "
                "fixed when they were made, or needs them in memory"
            )
    target = (options.out or options.model / "evaluation") / JSON_NAME
    check_writable(target)
    with explain_missing():
        from slimreid.bulk.evaluate import evaluate_embeddings
    found = evaluate_embeddings(options.model, options.protocol, memory_megabytes=options.memory)
    write_text(target, dump(found.to_dict()) + "\n")
    result = found.result
    lines = [
        ("manifest", found.card.manifest),
        ("model", f"{found.card.model} ({found.card.fingerprint[:12]})"),
        ("protocol", result.protocol),
        ("queries", f"{result.valid_queries:,} valid, {result.skipped_queries:,} skipped"),
        ("gallery", f"{found.gallery:,}; {found.left_out:,} rows without features left out"),
    ]
    print_facts(lines)
    row = figures(found.card.feature, result, found.interval)
    console.print(table(FIGURES, [row], "retrieval"))
    say(f"written: {target}")


def _rerank(options: EvaluateOptions) -> KReciprocal:
    given = (options.rerank_k1, options.rerank_k2, options.rerank_lambda)
    named: Any = zip(("k1", "k2", "original_weight"), given, strict=True)
    return KReciprocal(**{name: value for name, value in named if value is not None})


def _thresholds(options: EvaluateOptions, loaded: LoadedModel, available: Subset) -> list[Threshold]:
    """The thresholds that were given; raises `ConfigError` or `DataError` naming the word at fault."""
    found: list[Threshold] = []
    for word in options.threshold:
        name, equals, number = word.rpartition("=")
        if Path(word).exists():
            found += _chosen_elsewhere(Path(word), options, loaded, available)
        elif (value := _number(number)) is not None:
            sides = [parse_subset(side, loaded.modalities) for side in name.split("/")] if equals else [None]
            if len(sides) > 2:
                raise ConfigError(f"--threshold {word}: name one subset, or query/gallery")
            found.append(Threshold(value, sides[0], sides[-1]))
        else:
            raise ConfigError(
                f"--threshold {word}: neither a number (1.3, rt=1.3, r/rnt=1.3) nor an existing evaluation"
            )
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _chosen_elsewhere(
    path: Path, options: EvaluateOptions, loaded: LoadedModel, available: Subset
) -> list[Threshold]:
    """The thresholds of another evaluation of the same model that apply to this one."""
    other = read_evaluation(path)
    adaptation = loaded.adaptation.digest if loaded.adaptation is not None else ""
    if (other.fingerprint, other.adaptation) != (loaded.fingerprint, adaptation):
        raise ConfigError(
            f"--threshold {path}: an evaluation of other weights or another adaptation; a threshold is "
            "valid for one model only"
        )
    subsets = all_subsets(available) if options.missing == "all" else [available]
    found = thresholds_of(other.features, other.missing, other.modalities)
    chosen = [t for t in found if t.query in subsets and t.gallery in subsets]
    if not chosen:
        raise ConfigError(
            f"--threshold {path}: it has no threshold for {'+'.join(available)}, which this data has; "
            "make it again with 'slimreid evaluate --missing all', on enough pairs to have one"
        )
    return chosen


def print_evaluation(evaluation: Evaluation) -> None:
    """Show the tables of an evaluation; those about a single kind of feature for its main one only."""
    print_facts(facts(evaluation))
    for sheet in sheets(evaluation):
        if sheet.kind not in (None, evaluation.main):
            continue
        if len(sheet.columns) > MOST_COLUMNS:
            say(f"{sheet.title}: {len(sheet.columns) - 1} columns, see the files")
            continue
        console.print(table(sheet.columns, sheet.rows, sheet.title))
