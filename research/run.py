"""Run the experiments of plans, as far as they have no result yet; stop and go on at any time.

    python research/run.py                      # all plans in research/plans
    python research/run.py synthetic --only 'sdtps*'
    python research/run.py --list               # what there is, and how far it is
    python research/run.py market --place market=m/manifest.csv --place weights=vit_tiny.pth

A result is written to research/results/PLAN/ as soon as its run ends, the run itself to
runs/experiments/PLAN/. Plans whose data is nowhere are skipped with a line. See docs/ablations.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from plan_file import RUNS, Plan, read_plan

from slimreid.ablation.plan import Job, make_jobs
from slimreid.ablation.runner import run_jobs
from slimreid.cli.app import main as slimreid
from slimreid.cli.commands.ablate import print_failures
from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.errors import ConfigError
from slimreid.runs.folder import RunFolder
from slimreid.runs.record import read_record
from slimreid.training.callbacks.display import duration

ROOT = Path(__file__).resolve().parents[1]
PLANS = Path("research/plans")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", nargs="*", help="names of plans, or plan files; default: all")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="e.g. 'sdtps-seed*'")
    parser.add_argument("--list", action="store_true", help="show the experiments and what is finished")
    parser.add_argument("--place", action="append", default=[], metavar="NAME=PATH", help="where a need is")
    parser.add_argument(
        "--rerun",
        action="store_true",
        help="throw away what was made with other options or by an earlier version",
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the runs")
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    return parser.parse_args(arguments)


def plan_files(names: Sequence[str]) -> list[Path]:
    """The files of named plans; raises `ConfigError` for one that is not there."""
    known = sorted(PLANS.glob("*.yaml"))
    if not names:
        return known
    found = []
    for name in names:
        path = Path(name) if name.endswith((".yaml", ".yml")) else PLANS / f"{name}.yaml"
        if not path.is_file():
            raise ConfigError(f"no plan '{name}'; there are {', '.join(p.stem for p in known)}")
        found.append(path)
    return found


def read_places(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=PATH` texts as absolute paths, so that they hold wherever this script works."""
    places = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"--place '{text}': give NAME=PATH")
        places[name] = str(Path(path).resolve())
    return places


def jobs_of(plan: Plan, places: dict[str, str], options: argparse.Namespace) -> list[Job]:
    """The chosen jobs of a plan, its data made first where it can be; none where something is lacking."""
    wanted = [e for e in plan.experiments if any(_chosen(e.name, s, options.only) for s in e.seeds)]
    if not wanted:
        return []
    if plan.lacking:
        for need in plan.lacking:
            console.print(
                f"{plan.name}: skipped, it needs {need.what}; give --place {need.name}=PATH or set "
                f"{need.environment}",
                markup=False,
                soft_wrap=True,
            )
        return []
    for words in plan.to_make(places):
        console.print(f"making: slimreid {' '.join(words)}", markup=False, soft_wrap=True)
        if slimreid(words):
            raise ConfigError(f"{plan.name}: its data could not be made")
    jobs = make_jobs(wanted, options.runs / plan.name, options.results / plan.name)
    return [job for job in jobs if _chosen(job.experiment.name, job.config.seed, options.only)]


def _chosen(name: str, seed: int, patterns: Sequence[str]) -> bool:
    full = f"{name}-seed{seed}"
    return not patterns or any(fnmatch(word, p) for p in patterns for word in (name, full))


def show(plan: Plan, options: argparse.Namespace) -> None:
    """A table of a plan's runs and how far they are, by the files that are there; no data is needed."""
    rows = []
    for experiment in plan.experiments:
        for seed in experiment.seeds:
            name = f"{experiment.name}-seed{seed}"
            if not _chosen(experiment.name, seed, options.only):
                continue
            result = options.results / plan.name / f"{name}.json"
            epochs = RunFolder(options.runs / plan.name / name).epochs_done
            if result.is_file():
                record = read_record(result)
                took = duration(sum(record.seconds.values()))
                state = "earlier version" if record.unknown_options else "finished"
                rows.append((name, state, f"{100 * record.figures().map:.1f}", took))
            else:
                rows.append((name, f"{epochs} epochs" if epochs else "new", "", ""))
    lacking = ", ".join(need.name for need in plan.lacking)
    title = f"{plan.name} (needs --place {lacking})" if lacking else plan.name
    console.print(table(["run", "state", "mAP", "time"], rows, title))


def run(options: argparse.Namespace) -> int:
    places = read_places(options.place)
    os.chdir(ROOT)
    plans = [read_plan(path, places, runs=options.runs) for path in plan_files(options.plans)]
    unknown = set(places) - {need.name for plan in plans for need in plan.needs}
    if unknown:
        raise ConfigError(f"--place: nothing needs '{sorted(unknown)[0]}'")
    if options.list:
        for plan in plans:
            show(plan, options)
        return 0
    jobs = [job for plan in plans for job in jobs_of(plan, places, options)]
    if not jobs:
        console.print("nothing to run")
        return 0
    say = lambda line: console.print(line, markup=False, soft_wrap=True)  # noqa: E731
    try:
        outcome = run_jobs(jobs, rerun=options.rerun, keep_earlier=True, say=say)
    except KeyboardInterrupt:
        done = sum(job.result.is_file() for job in jobs)
        say(f"stopped; {done} of {len(jobs)} runs are finished, go on with the same command")
        return 130
    print_failures(outcome.failures, len(jobs))
    say(f"{len(outcome.records)} of {len(jobs)} results are in {options.results}; next: research/tables.py")
    return 1 if outcome.failures else 0


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    return run(parse(arguments))


if __name__ == "__main__":
    sys.exit(main())
