"""`slimreid evaluate`: how well a trained model retrieves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slimreid.console import console, table
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from slimreid.evaluation.evaluation import Evaluation
    from slimreid.evaluation.rerank import KReciprocal

MOST_COLUMNS = 13
"""Wider tables are left to the files: a terminal would break their lines."""


def evaluate(
    run: Path,
    data: Path | None = None,
    features: Literal["original", "slimmed", "fused", "both", "all"] = "all",
    missing: Literal["none", "all"] = "none",
    rerank: bool = False,
    rerank_k1: int | None = None,
    rerank_k2: int | None = None,
    rerank_lambda: float | None = None,
    protocol: Literal["camera", "scene", "none"] | None = None,
    part: Literal["test", "val"] = "test",
    out: Path | None = None,
    cameras: Literal["auto", "same", "other"] = "auto",
    device: str | None = None,
    batch: int | None = None,
    workers: int | None = None,
    skip_broken: bool = False,
    no_cache: bool = False,
) -> None:
    """Measure how well a trained model retrieves, on its own data or on others.

    Args:
        run: Folder of a run or checkpoint, or a model file.
        data: Manifest, or a folder with manifest.csv; default: the data of the run.
        features: Which embedding to search by: one branch of the model, both, or all of these in turn.
        missing: all = also every subset of the modalities, on either side.
        rerank: Also with k-reciprocal re-ranking.
        rerank_k1: Neighbours that must count each other; default: 20.
        rerank_k2: Nearest items over which a description is averaged; default: 6.
        rerank_lambda: Weight of the original distance, 0 to 1; default: 0.3.
        protocol: Which gallery images a query must ignore; default: what the manifest says.
        part: Search query in gallery (test), or val in itself.
        out: Folder for the results and the features; default: evaluation in the folder of the run.
        cameras: Whether cameras named as those of training are those; auto = in the data of the run.
        device: cpu, cuda, mps; default: a GPU if there is one.
        batch: Samples embedded at once; default: as in training.
        workers: Processes that load images; default: as in training.
        skip_broken: Leave out samples whose files cannot be read, instead of stopping.
        no_cache: Compute the features anew and do not keep them.
    """
    from slimreid.evaluation.data import open_data
    from slimreid.evaluation.evaluation import JSON_NAME, evaluate_model, evaluation_folder
    from slimreid.evaluation.writing import write_evaluation
    from slimreid.files import check_writable
    from slimreid.loading import choose_device, load

    options = _rerank_options(rerank, k1=rerank_k1, k2=rerank_k2, original_weight=rerank_lambda)
    loaded = load(run, choose_device(device))
    folder = out or evaluation_folder(loaded.path, open_data(loaded, data), part)
    check_writable(folder / JSON_NAME)
    evaluation = evaluate_model(
        loaded,
        data,
        features=features,
        missing=missing == "all",
        rerank=options or False,
        protocol=protocol,
        part=part,
        folder=None if no_cache else folder,
        cameras=cameras,
        batch=batch,
        workers=workers,
        skip_broken=skip_broken or None,
    )
    files = write_evaluation(evaluation, folder)
    print_evaluation(evaluation)
    console.print(f"written: {', '.join(map(str, files))}", soft_wrap=True, markup=False)


def _rerank_options(wanted: bool, **given: float | None) -> KReciprocal | None:
    """Options of re-ranking if it is wanted; raises `ConfigError` for options of what is not."""
    from slimreid.evaluation.rerank import KReciprocal

    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if chosen and not wanted:
        raise ConfigError("--rerank-k1, --rerank-k2 and --rerank-lambda go with --rerank")
    return KReciprocal(**chosen) if wanted else None


def print_evaluation(evaluation: Evaluation) -> None:
    """Show the tables of an evaluation; those about a single kind of feature for its main one only."""
    from slimreid.evaluation.writing import facts, sheets

    for name, text in facts(evaluation):
        console.print(f"[bold]{name:<11}[/]", end="")
        console.print(text, markup=False, soft_wrap=True)
    for sheet in sheets(evaluation):
        if sheet.kind not in (None, evaluation.main):
            continue
        if len(sheet.columns) > MOST_COLUMNS:
            console.print(f"{sheet.title}: {len(sheet.columns) - 1} columns, see the files", markup=False)
            continue
        console.print(table(sheet.columns, sheet.rows, sheet.title))
