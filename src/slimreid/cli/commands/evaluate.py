"""`slimreid evaluate`: how well a trained model retrieves."""

from __future__ import annotations

from typing import Any

from slimreid.cli.console import console, say, table
from slimreid.cli.options.measuring import EvaluateOptions
from slimreid.evaluation.metrics.rerank import KReciprocal
from slimreid.evaluation.reports.evaluate import (
    JSON_NAME,
    Evaluation,
    EvaluationOptions,
    evaluate_model,
    evaluation_folder,
)
from slimreid.evaluation.reports.writing import facts, sheets, write_evaluation
from slimreid.files import check_writable
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load

MOST_COLUMNS = 13
"""Wider tables are left to the files: a terminal would break their lines."""


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate retrieval with a trained model, on its own data or on other data."""
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
