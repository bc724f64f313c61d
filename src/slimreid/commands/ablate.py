"""`slimreid ablate`: the same training with some options varied, several seeds each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slimreid.console import console, progress
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slimreid.config import Config
    from slimreid.experiments.comparison import Comparison
    from slimreid.experiments.plan import Experiment, Job
    from slimreid.experiments.record import RunRecord
    from slimreid.experiments.runner import Failure

logger = logging.getLogger(__name__)

BASE_NAME = "base.yaml"


def ablate(
    config: Config,
    grid: list[str] = [],  # noqa: B006 - the command line copies it
    seeds: str = "0,1,2",
    output: Path = Path("runs/ablation"),
    feature: Literal["original", "slimmed", "fused", "both"] = "both",
    missing: bool = False,
    skip_speed: bool = False,
    rerun: bool = False,
) -> int:
    """Train with every combination of some options and several seeds, and compare.

    Args:
        config: Options of all runs.
        grid: An option and its values, e.g. model.slimming.keep_ratio=0.3,0.5,0.7; may be repeated.
        seeds: Seeds of each combination.
        output: Folder for the runs, their results, the table and the plot. The same command goes on with
            what it holds: finished runs are not repeated, an interrupted one continues.
        feature: Which feature to compare by.
        missing: Also measure every subset of the modalities.
        skip_speed: Do not measure images per second.
        rerun: Throw away runs that were made with other options, and run them again.
    """
    from slimreid.experiments.grid import parse_axes, parse_seeds
    from slimreid.experiments.plan import grid_experiments, make_jobs
    from slimreid.experiments.runner import run_jobs, states

    axes, numbers = parse_axes(grid), parse_seeds(seeds)
    experiments = grid_experiments(output / BASE_NAME, axes, numbers, missing)
    with _base_config(config, output):
        jobs = make_jobs(experiments, output / "runs", output / "results")
        _check_feature(feature, jobs)
        states(jobs, rerun)
    console.print(f"{len(experiments)} settings × {len(numbers)} seeds = {len(jobs)} runs, in {output}")
    try:
        outcome = run_jobs(jobs, rerun=rerun, say=_say)
        if outcome.records:
            _conclude(outcome.records, experiments, jobs, output, feature, skip_speed)
    except KeyboardInterrupt:
        done = sum(job.result.is_file() for job in jobs)
        logger.info("stopped; %d of %d runs are finished, go on with the same command", done, len(jobs))
        return 130
    print_failures(outcome.failures, len(jobs))
    return 1 if outcome.failures else 0


def _say(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _check_feature(feature: str, jobs: Sequence[Job]) -> None:
    """Raise `ConfigError` for a feature that one of the runs will not have: before all of them, not after."""
    for job in jobs:
        second = job.config.model.second
        if feature in ("slimmed", "fused") and feature != second:
            there = ", ".join(filter(None, ("original", second, "both")))
            raise ConfigError(f"--feature {feature}: '{job.experiment.title}' will not have it, only {there}")


@contextmanager
def _base_config(config: Config, output: Path) -> Iterator[None]:
    """Write the options that all runs start from; after an error in the block the old ones are put back."""
    from slimreid.config_io import save_config

    path = output / BASE_NAME
    before = path.read_bytes() if path.is_file() else None
    save_config(config, output, BASE_NAME)
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink()
            with suppress(OSError):  # it holds something
                output.rmdir()
        else:
            path.write_bytes(before)
        raise


def print_failures(failures: Sequence[Failure], count: int) -> None:
    """Say which runs failed and why; nothing if none did."""
    if failures:
        console.print(
            f"[bold red]{len(failures)} of {count} runs failed[/]; the same command tries them again"
        )
        for failure in failures:
            _say(f"  {failure.job.name}: {failure.reason}")


def _conclude(
    records: Sequence[RunRecord],
    experiments: Sequence[Experiment],
    jobs: Sequence[Job],
    output: Path,
    feature: str,
    skip_speed: bool,
) -> None:
    """Print and write the table, and draw the plot."""
    from slimreid.commands.compare import print_comparison
    from slimreid.errors import DataError
    from slimreid.experiments.comparison import compare_records
    from slimreid.experiments.tables import write_comparison
    from slimreid.visual.style import save_picture

    speeds = None if skip_speed else _speeds(records, jobs)
    try:
        comparison = compare_records(records, feature, speeds=speeds)
    except DataError as error:  # runs over modalities that not every sample has
        _say(f"no differences: {error}")
        comparison = compare_records(records, feature, speeds=speeds, paired=False)
    print_comparison(comparison)
    for suffix in (".md", ".csv", ".json"):
        write_comparison(output / f"ablation{suffix}", comparison)
    save_picture(plot_of(comparison, experiments), output / "ablation.png")
    _say(f"table: {output / 'ablation.md'} (.csv, .json), plot: {output / 'ablation.png'}")


def _speeds(records: Sequence[RunRecord], jobs: Sequence[Job]) -> dict[str, float]:
    """Images per second of one run of each setting, as far as its model is still there."""
    from slimreid.experiments.runs import first_of_each, measure_speeds
    from slimreid.loading import MODEL_NAME, load

    folders = {job.name: job.run for job in jobs}
    found = {label: folders[record.name] for label, record in first_of_each(records).items()}
    models = {label: load(folder) for label, folder in found.items() if (folder / MODEL_NAME).is_file()}
    return measure_speeds(models, rounds=lambda rounds: progress(rounds, "measuring speed")) if models else {}


def plot_of(comparison: Comparison, experiments: Sequence[Experiment]) -> Figure:
    """The figure of a comparison whose rows are the points of a grid."""
    from slimreid.visual.ablation import GridPoint, ablation_plot

    where = {experiment.title: experiment.changes for experiment in experiments}
    points = [GridPoint(where[row.label], row.map.values) for row in comparison.rows]
    return ablation_plot(points, ylabel=f"mAP, {comparison.feature} (points)")
