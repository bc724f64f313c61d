"""`slimreid evaluate`: how well a trained model retrieves."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from slimreid.bulk.card import is_embedding_folder
from slimreid.cli.console import console, say, table
from slimreid.cli.options.measuring import EvaluateOptions
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.rerank import KReciprocal
from slimreid.evaluation.reports.evaluate import (
    JSON_NAME,
    Evaluation,
    EvaluationOptions,
    evaluate_model,
    evaluation_folder,
)
from slimreid.evaluation.reports.records import dump
from slimreid.evaluation.reports.writing import RANKS, facts, figures, sheets, write_evaluation
from slimreid.extras import explain_missing
from slimreid.files import check_writable, write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load

MOST_COLUMNS = 13
"""Wider tables are left to the files: a terminal would break their lines."""


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate retrieval with a trained model, on its own data or on other data."""
    if is_embedding_folder(options.model):
        _evaluate_embeddings(options)
        return
    loaded = load(options.model, options.device)
    data = open_data(loaded, options.data)
    folder = options.out or evaluation_folder(loaded.path, data, options.part)
    check_writable(folder / JSON_NAME)
    evaluation = evaluate_model(
        loaded,
        data,
        EvaluationOptions(
            features=options.feature,
            missing=options.missing == "all",
            rerank=_rerank(options) if options.rerank else None,
            protocol=options.protocol,
            part=options.part,
        ),
        Extraction(
            cameras=options.cameras,
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
    """Evaluate embeddings that were written before, in bounded memory."""
    used = ("model", "protocol", "out", "memory")
    for each in fields(options):
        if each.name not in used and getattr(options, each.name) != each.default:
            raise ConfigError(
                f"--{each.name.replace('_', '-')} does not go with a folder of embeddings; it was chosen "
                "when they were made, or needs them in memory"
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
    for name, text in lines:
        console.print(f"{name:<11}", style="bold", end="")
        say(text)
    columns = ("feature", "mAP", "95 %", "mINP", *(f"R-{k}" for k in RANKS))
    row = figures(found.card.feature, result, found.interval)
    console.print(table(columns, [row], "retrieval"))
    say(f"written: {target}")


def _rerank(options: EvaluateOptions) -> KReciprocal:
    given: dict[str, Any] = {
        "k1": options.rerank_k1,
        "k2": options.rerank_k2,
        "original_weight": options.rerank_lambda,
    }
    return KReciprocal(**{name: value for name, value in given.items() if value is not None})


def print_evaluation(evaluation: Evaluation) -> None:
    """Show the tables of an evaluation; those about a single kind of feature for its main one only."""
    for name, text in facts(evaluation):
        console.print(f"{name:<11}", style="bold", end="")
        say(text)
    for sheet in sheets(evaluation):
        if sheet.kind not in (None, evaluation.main):
            continue
        if len(sheet.columns) > MOST_COLUMNS:
            say(f"{sheet.title}: {len(sheet.columns) - 1} columns, see the files")
            continue
        console.print(table(sheet.columns, sheet.rows, sheet.title))
