"""`slimreid compare`: one table over runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slimreid.console import console, progress, table
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from slimreid.experiments.comparison import Comparison
    from slimreid.experiments.record import RunRecord
    from slimreid.loading import LoadedModel

SHOWN_OPTIONS = 12


def compare(
    runs: list[Path],
    feature: Literal["original", "slimmed", "fused", "both"] = "both",
    skip_speed: bool = False,
    batch: int = 8,
    repeats: int = 9,
    samples: int = 2000,
    out: Path | None = None,
) -> None:
    """Compare runs in one table, those that differ only by the seed in one row, against the first row.

    Args:
        runs: Folders of runs, model files, or results of experiments (.json).
        feature: Which feature to search by.
        skip_speed: Do not measure images per second.
        batch: Samples in a batch when measuring the speed.
        repeats: Forward passes of each model when measuring the speed; they take turns, the median counts.
        samples: Resamples of the bootstrap.
        out: File to write the table to: .md, .csv or .json.
    """
    from slimreid.experiments.comparison import changed_options, compare_records, group_by_seed
    from slimreid.experiments.tables import check_suffix, write_comparison
    from slimreid.files import check_writable

    if out is not None:
        check_suffix(out)
        check_writable(out)
    if batch < 1 or repeats < 1 or samples < 2:
        raise ConfigError("batch and repeats must be at least 1, samples at least 2")
    doubles = [
        run for number, run in enumerate(runs) if run.resolve() in {r.resolve() for r in runs[:number]}
    ]
    if doubles:
        raise ConfigError(f"{doubles[0]} is given twice")
    models: dict[str, LoadedModel] = {}
    records = group_by_seed([_open(run, models) for run in progress(runs, "reading runs")])
    comparison = compare_records(records, feature, samples=samples)  # refuses before the speed is measured
    if models and not skip_speed:
        speeds = _speeds(records, models, batch, repeats)
        comparison = compare_records(records, feature, speeds=speeds, samples=samples)
    print_comparison(comparison)
    _print_options(changed_options(records))
    if out is not None:
        write_comparison(out, comparison)
        console.print(f"written to {out}", soft_wrap=True)


def _open(run: Path, models: dict[str, LoadedModel]) -> RunRecord:
    """The record of what a person named; its model, if there is one, is added to `models` by name."""
    from slimreid.experiments.record import read_record
    from slimreid.experiments.runs import run_record
    from slimreid.loading import load

    if run.suffix == ".json":
        return read_record(run)
    loaded = load(run)
    record = run_record(run, loaded=loaded)
    models[record.name] = loaded
    return record


def _speeds(
    records: Sequence[RunRecord], models: dict[str, LoadedModel], batch: int, repeats: int
) -> dict[str, float]:
    from slimreid.experiments.runs import first_of_each, measure_speeds

    chosen = {label: models[r.name] for label, r in first_of_each(records).items() if r.name in models}
    return measure_speeds(chosen, batch, repeats, lambda rounds: progress(rounds, "measuring speed"))


def print_comparison(comparison: Comparison) -> None:
    """One table, or two where the terminal is too narrow, and what must be known of it."""
    from rich.measure import Measurement

    from slimreid.experiments.tables import COST, caption, cells, headings

    columns = headings(comparison)
    whole = table(columns, [cells(row, columns) for row in comparison.rows])
    if Measurement.get(console, console.options.update(width=10_000), whole).maximum <= console.width:
        console.print(whole)
    else:
        for part in ([c for c in columns if c not in COST], ["model", *(c for c in columns if c in COST)]):
            console.print(table(part, [cells(row, part) for row in comparison.rows]))
    for line in caption(comparison):
        console.print(line, markup=False, soft_wrap=True)


def _print_options(changed: dict[str, dict[str, object]]) -> None:
    """What the rows differ in, if that is not too much."""
    if not changed or len(changed) > SHOWN_OPTIONS:
        return
    labels = list(next(iter(changed.values())))
    rows = [[key, *(json.dumps(value) for value in values.values())] for key, values in changed.items()]
    console.print(table(["options that differ", *labels], rows))
