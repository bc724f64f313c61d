"""`slimreid ablate`: the same training with some options varied, several seeds each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from slimreid.ablation.plan import Experiment, Job, grid_experiments, make_jobs
from slimreid.ablation.runner import Failure, run_jobs, states
from slimreid.cli.commands.compare import print_comparison
from slimreid.cli.console import say
from slimreid.cli.options.training import AblateOptions
from slimreid.cli.signals import stop_code
from slimreid.config import Config
from slimreid.config.files import save_config
from slimreid.errors import ConfigError, DataError
from slimreid.inference.load import load
from slimreid.inference.model_card import MODEL_NAME
from slimreid.progress import progress
from slimreid.runs.comparison import compare_records
from slimreid.runs.measure import first_of_each, measure_speeds
from slimreid.runs.record import RunRecord
from slimreid.runs.tables import write_comparison
from slimreid.visual.plots.ablation import GridPoint, ablation_plot
from slimreid.visual.style import save_picture

logger = logging.getLogger(__name__)

BASE_NAME = "base.yaml"


def ablate(options: AblateOptions) -> int:
    """Train with every combination of some options and several seeds, and compare."""
    out, rerun = options.out, options.rerun
    seeds = options.seeds
    experiments = grid_experiments(out / BASE_NAME, options.axes, seeds, options.missing == "all")
    with _base_config(options.config, out):
        jobs = make_jobs(experiments, out / "runs", out / "results")
        _check_feature(options.feature, jobs)
        states(jobs, rerun)
    say(f"{len(experiments)} settings × {len(seeds)} seeds = {len(jobs)} runs, in {out}")
    try:
        outcome = run_jobs(jobs, rerun=rerun, say=say)
        if outcome.records:
            _conclude(outcome.records, experiments, jobs, options)
    except KeyboardInterrupt as stop:
        done = sum(job.result.is_file() for job in jobs)
        logger.info("stopped; %d of %d runs are finished, run the same command to continue", done, len(jobs))
        return stop_code(stop)
    print_failures(outcome.failures, len(jobs))
    return 1 if outcome.failures else 0


def _check_feature(feature: str, jobs: Sequence[Job]) -> None:
    """Raise `ConfigError` for a feature that one of the runs will not have: before all of them, not after."""
    for job in jobs:
        second = job.config.model.second
        if feature in ("slimmed", "fused") and feature != second:
            there = ", ".join(filter(None, ("original", second, "both")))
            name = job.experiment.title
            raise ConfigError(f"--feature {feature}: '{name}' has no such feature, only {there}")


@contextmanager
def _base_config(config: Config, out: Path) -> Iterator[None]:
    """Write the options that all runs start from; after an error in the block the old ones are put back."""
    path = out / BASE_NAME
    before = path.read_bytes() if path.is_file() else None
    save_config(config, out, BASE_NAME)
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink()
            with suppress(OSError):  # it holds something
                out.rmdir()
        else:
            path.write_bytes(before)
        raise


def print_failures(failures: Sequence[Failure], count: int) -> None:
    """Say which runs failed and why; nothing if none did."""
    if failures:
        say(f"{len(failures)} of {count} runs failed; run the same command to try them again")
        for failure in failures:
            say(f"  {failure.job.name}: {failure.reason}")


def _conclude(
    records: Sequence[RunRecord],
    experiments: Sequence[Experiment],
    jobs: Sequence[Job],
    options: AblateOptions,
) -> None:
    """Print and write the table, and draw the plot."""
    out, feature = options.out, options.feature
    speeds = None if options.skip_speed else _speeds(records, jobs)
    try:
        comparison = compare_records(records, feature, speeds=speeds)
    except DataError as error:  # runs over modalities that not every sample has
        say(f"no differences: {error}")
        comparison = compare_records(records, feature, speeds=speeds, paired=False)
    print_comparison(comparison)
    for suffix in (".md", ".csv", ".json"):
        write_comparison(out / f"ablation{suffix}", comparison)
    where = {experiment.title: experiment.changes for experiment in experiments}
    points = [GridPoint(where[row.label], row.map.values) for row in comparison.rows]
    figure = ablation_plot(points, ylabel=f"mAP, {comparison.feature} (points)")
    save_picture(figure, out / "ablation.png")
    say(f"table: {out / 'ablation.md'} (.csv, .json), plot: {out / 'ablation.png'}")


def _speeds(records: Sequence[RunRecord], jobs: Sequence[Job]) -> dict[str, float]:
    """Images per second of one run of each setting, as far as its model is still there."""
    folders = {job.name: job.run for job in jobs}
    found = {label: folders[record.name] for label, record in first_of_each(records).items()}
    models = {label: load(folder) for label, folder in found.items() if (folder / MODEL_NAME).is_file()}
    return measure_speeds(models, rounds=lambda rounds: progress(rounds, "measuring speed")) if models else {}
