"""`slimreid compare` and `report`: one table, or one page, of several trained models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from slimreid.cli.console import print_table, say
from slimreid.cli.options.measuring import CompareOptions, ReportOptions
from slimreid.errors import ConfigError
from slimreid.files import check_writable
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.progress import progress
from slimreid.runs.comparison import Comparison, changed_options, compare_records, group_by_seed
from slimreid.runs.measure import evaluation_record, first_of_each, is_evaluation, measure_speeds, run_record
from slimreid.runs.record import RunRecord, read_record
from slimreid.runs.tables import caption, cells, headings, write_comparison
from slimreid.visual.html.report import write_report
from slimreid.visual.html.run import gather_run, run_names

SHOWN_OPTIONS = 12


def compare(options: CompareOptions) -> None:
    """Compare trained models in one table, against the first row."""
    feature, samples = options.feature, options.samples
    if options.out is not None:
        check_writable(options.out)
    models: dict[str, LoadedModel] = {}
    given = progress(options.models, "reading runs")
    records = group_by_seed([_open(model, options.data, models) for model in given])
    comparison = compare_records(records, feature, samples=samples)  # refuses before the speed is measured
    if models and not options.skip_speed:
        chosen = {label: models[r.name] for label, r in first_of_each(records).items() if r.name in models}
        bar = partial(progress, description="measuring speed")
        speeds = measure_speeds(chosen, options.batch, options.repeats, bar)
        comparison = compare_records(records, feature, speeds=speeds, samples=samples)
    print_comparison(comparison)
    _print_options(changed_options(records))
    if options.out is not None:
        write_comparison(options.out, comparison)
        say(f"written to {options.out}")


def _open(run: Path, data: Path | None, models: dict[str, LoadedModel]) -> RunRecord:
    """The record of what a person named; its model, if there is one, is added to `models` by name."""
    if run.suffix == ".json" or is_evaluation(run):
        if data is not None:
            raise ConfigError(f"{run}: its figures are measured already, so --data needs the model itself")
        if not is_evaluation(run):
            return read_record(run)
        record, loaded = evaluation_record(run)
    else:
        loaded = load(run)
        record = run_record(run, data=data, loaded=loaded)
    if loaded is not None:
        models[record.name] = loaded
    return record


def print_comparison(comparison: Comparison) -> None:
    """One table, or two where the terminal is too narrow, and what must be known of it."""
    columns = headings(comparison)
    print_table(columns, [cells(row, columns) for row in comparison.rows])
    for line in caption(comparison):
        say(line)


def _print_options(changed: dict[str, dict[str, object]]) -> None:
    """What the rows differ in, if that is not too much."""
    if not changed or len(changed) > SHOWN_OPTIONS:
        return
    labels = list(next(iter(changed.values())))
    rows = [[key, *(json.dumps(value) for value in values.values())] for key, values in changed.items()]
    print_table(["options that differ", *labels], rows)


def report(options: ReportOptions) -> None:
    """Write one self-contained HTML page: metrics, curves, examples, commands to reproduce it."""
    named, out = list(zip(options.models, run_names(options.models), strict=True)), options.out
    check_writable(out)
    runs = [gather_run(path, name, options.data) for path, name in progress(named, "evaluating models")]
    write_report(runs, out)
    say(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
