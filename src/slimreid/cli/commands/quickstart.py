"""`slimreid quickstart`: from nothing to a report."""

from __future__ import annotations

import logging

from slimreid.cli.console import console, quietened, say, table
from slimreid.cli.options.training import QuickstartOptions
from slimreid.cli.quickstart import FAST, FULL, HEADLINE, Quickstart, Stage, headline, run_quickstart
from slimreid.cli.quickstart_verdicts import verdicts
from slimreid.evaluation.reports.formatting import points
from slimreid.modalities import subset_name
from slimreid.training.callbacks.display import TrainingBar


def quickstart(options: QuickstartOptions) -> None:
    """Generate a small dataset, train and evaluate three models, and write a report."""
    try:
        with quietened("slimreid.training", logging.WARNING):
            done = run_quickstart(options.folder, FAST if options.fast else FULL, _print_stage, TrainingBar)
    except KeyboardInterrupt:
        say("stopped; run the same command again to continue")
        raise
    _print_result(done)


def _print_stage(stage: Stage) -> None:
    say(f"{stage.name:<17}{stage.what:<55}{stage.seconds:6.1f} s")


def _print_result(done: Quickstart) -> None:
    figures = [headline(run, done.speed[run.name]) for run in done.runs]
    console.print(table(HEADLINE, figures, "retrieval with all modalities"))
    rows, names = [], []
    for run in done.runs:
        matrix = run.evaluation.missing[run.evaluation.main]
        names = [subset_name(subset, run.evaluation.modalities) for subset in matrix.subsets]
        rows.append([run.name, *map(points, matrix.map.diagonal())])
    console.print(table(["mAP with", *names], rows, "when modalities are missing (r rgb, n nir, t tir)"))
    for verdict in verdicts(done.runs, done.speed):
        say(verdict)
    total = sum(stage.seconds for stage in done.stages)
    say(f"all in {total:.0f} s; report: {done.report}")
