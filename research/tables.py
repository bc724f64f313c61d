"""Turn the results of experiments into tables and pictures for docs/results.md.

    python research/tables.py [PLAN ...] [--results research/results] [--out research/results]

Writes PLAN.md (table, kept patches, missing modalities, commands) and PLAN.png for every plan, and
PLAN-selection.png where the choice of patches was watched (the first eight arms), from the results alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from models_plot import models_plot
from plan_file import read_plan
from selection_curves import Summary, selection_curves
from selection_tables import selection_table, subsets_table

from slimreid.cli.console import console, ending_in_one_line
from slimreid.errors import DataError
from slimreid.evaluation.reports.formatting import markdown_table, points
from slimreid.evaluation.reports.missing import MissingMatrix
from slimreid.evaluation.reports.writing import chance_text
from slimreid.files import natural_key, write_text
from slimreid.runs.comparison import compare_records
from slimreid.runs.record import RunRecord, read_record
from slimreid.runs.tables import to_markdown
from slimreid.visual.style import save_picture

HERE = Path(__file__).resolve().parent
DRAWN = 8


def read_results(folder: Path, order: Sequence[str]) -> list[RunRecord]:
    """All results of a folder, in the order of the plan's labels, then by seed."""
    records = [read_record(path) for path in sorted(folder.glob("*.json"), key=lambda p: natural_key(p.name))]
    known = [record for record in records if record.label in order]
    return sorted(known, key=lambda record: (order.index(record.label), record.seed))


def missing_table(label: str, records: Sequence[RunRecord], feature: str) -> str:
    """mAP for every pair of subsets of the modalities that query and gallery may have, mean over seeds."""
    matrices = [MissingMatrix.from_dict(r.missing[feature]) for r in records if feature in r.missing]
    if not matrices:
        return ""
    mean = np.mean([matrix.map for matrix in matrices], axis=0)  # NaN where there was no valid query
    names = ["+".join(subset) for subset in matrices[0].subsets]
    rows = [[name, *map(points, row)] for name, row in zip(names, mean, strict=True)]
    title = f"{label} ({feature}): mAP, rows query, columns gallery; {chance_text(matrices[0])}"
    return f"{title}\n\n{markdown_table(['', *names], rows)}"


def page(title: str, about: str, records: Sequence[RunRecord]) -> str:
    """The Markdown of one plan."""
    try:
        table = to_markdown(compare_records(records))
    except DataError as error:
        table = to_markdown(compare_records(records, paired=False)) + f"\nNo differences: {error}\n"
    parts = [f"## {title}\n", f"{about}\n", f"![mAP of each model]({title}.png)\n", table]
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.label, []).append(record)
    if any(record.selection for record in records):
        parts.append(f"![The choice of patches during training]({title}-selection.png)\n")
    parts.append(selection_table(groups))
    if len(groups) > 1:
        parts.append(subsets_table(groups, "both"))
    for label, group in groups.items():
        feature = "both" if "both" in group[0].features else "original"
        if len(group[0].modalities) > 1:
            parts.append(missing_table(label, group, feature))
    commands = [str(group[0].source.get("command", "")) for group in groups.values()]
    parts.append("Commands (other seeds alike):\n\n```bash\n" + "\n".join(commands) + "\n```\n")
    minutes = sum(sum(record.seconds.values()) for record in records) / 60
    versions = sorted({str(record.source.get("versions", {}).get("torch", "?")) for record in records})
    commits = sorted({str(record.source.get("git_commit"))[:12] for record in records})
    parts.append(
        f"{len(records)} runs, {minutes:.0f} minutes in all, torch {', '.join(versions)}, "
        f"commit {', '.join(commits)}.\n"
    )
    if earlier := sum(bool(record.unknown_options) for record in records):
        parts.append(
            f"{earlier} of these results were made by earlier versions, whose options had other names. They "
            "are shown as they were measured, and some commands have the names of that time.\n"
        )
    return "\n".join(part for part in parts if part)


def first_watched(records: Sequence[RunRecord]) -> dict[str, Summary]:
    """What became of the choice of patches in the first run of each label that was watched.

    Only of the first `DRAWN` labels of a plan: a picture with more lines cannot be read.
    """
    found: dict[str, Summary] = {}
    for record in records:
        if record.selection:
            found.setdefault(record.label, record.selection)
    return dict(list(found.items())[:DRAWN])


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", nargs="*")
    parser.add_argument("--plans-folder", type=Path, default=HERE / "plans")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(arguments)
    out = options.out or options.results
    for path in sorted(options.plans_folder.glob("*.yaml")):
        if options.plans and path.stem not in options.plans:
            continue
        plan = read_plan(path)
        records = read_results(options.results / plan.name, [e.title for e in plan.experiments])
        if not records:
            console.print(f"{plan.name}: no results yet")
            continue
        write_text(out / f"{plan.name}.md", page(plan.name, plan.about, records))
        rows = compare_records(records, paired=False).rows
        save_picture(models_plot({row.label: row.map.values for row in rows}), out / f"{plan.name}.png")
        if watched := first_watched(records):
            save_picture(selection_curves(watched), out / f"{plan.name}-selection.png")
        console.print(f"{plan.name}: {len(records)} results in {out / plan.name}.md, .png", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
