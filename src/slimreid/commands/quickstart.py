"""`slimreid quickstart`: from nothing to a report, in a few minutes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from slimreid.console import console, table

if TYPE_CHECKING:
    from slimreid.quickstart import Quickstart, Stage


def quickstart(output: Path | None = None, fast: bool = False) -> None:
    """Make a small world, train three models on it, measure them and write a report.

    Args:
        output: Folder for everything; default: quickstart, or quickstart-fast with --fast. A second call goes
            on where the first stopped.
        fast: A version of under a minute, too small for good figures.
    """
    from slimreid.quickstart import FAST, FULL, run_quickstart

    output = output or Path("quickstart-fast" if fast else "quickstart")
    logging.getLogger("slimreid.training").setLevel(logging.WARNING)
    from slimreid.training.display import TrainingBar

    try:
        done = run_quickstart(output, FAST if fast else FULL, _print_stage, TrainingBar)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise
    _print_result(done)


def _print_stage(stage: Stage) -> None:
    console.print(f"{stage.name:<17}{stage.what:<55}{stage.seconds:6.1f} s", markup=False, soft_wrap=True)


def _print_result(done: Quickstart) -> None:
    from slimreid.evaluation.points import points
    from slimreid.modalities import subset_name
    from slimreid.quickstart import HEADLINE, headline

    console.print(
        table(HEADLINE, [headline(run, done.speed[run.name]) for run in done.runs], "what the models find")
    )
    rows, names = [], []
    for run in done.runs:
        matrix = run.evaluation.missing[run.evaluation.main]
        names = [subset_name(subset, run.evaluation.modalities) for subset in matrix.subsets]
        rows.append([run.name, *map(points, matrix.map.diagonal())])
    console.print(table(["mAP with", *names], rows, "when spectra are missing (r rgb, n nir, t tir)"))
    total = sum(stage.seconds for stage in done.stages)
    console.print(f"all in {total:.0f} s; report: {done.report}", soft_wrap=True)
