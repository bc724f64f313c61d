"""What became of the choice of patches in runs that were trained with train.watch_selection.

    python research/selection.py RUN [RUN ...] [--out FOLDER] [--samples 2] [--epochs 6] [--stage -1]

Writes selection.png (kept patches on the object, kept again, gradient of the score; a line per run) and, for
every run, kept-NAME.png: the kept patches of a few samples over training with the outline of the object.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from selection_curves import selection_curves
from selection_history import history_rows, selection_history, shown_epochs

from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.data.loader import open_manifest
from slimreid.errors import ConfigError
from slimreid.evaluation.reports.formatting import NOTHING, points
from slimreid.inference.load import load
from slimreid.runs.folder import RunFolder
from slimreid.runs.history import selection_summary
from slimreid.visual.style import save_picture


def draw_history(run: Path, out: Path, samples: int, epochs: int, stage: int) -> Path:
    """Draw the kept patches of one run over training; returns the picture."""
    loaded = load(run)
    rows = RunFolder(run).selection()
    chosen = shown_epochs(rows, epochs)
    stages = len(rows[0]["stages"])
    if not -stages <= stage < stages:
        raise ConfigError(f"--stage {stage}: {run} has stages 0 to {stages - 1}")
    grid = loaded.model.backbone.grid
    manifest = open_manifest(loaded.config)
    found = history_rows(rows, manifest, grid, chosen, samples=samples, stage=stage)
    path = out / f"kept-{run.name}.png"
    save_picture(selection_history(found, chosen, grid, title=run.name), path)
    return path


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--samples", type=int, default=2, help="samples in the pictures of kept patches")
    parser.add_argument("--epochs", type=int, default=6, help="at most so many epochs in them")
    parser.add_argument("--stage", type=int, default=-1, help="stage in the backbone, from 0")
    options = parser.parse_args(arguments)
    runs = {run.name: selection_summary(RunFolder(run).selection()) for run in options.runs}
    options.out.mkdir(parents=True, exist_ok=True)
    save_picture(selection_curves(runs), options.out / "selection.png")
    lines = []
    for run in options.runs:
        if not runs[run.name]:
            console.print(f"{run}: was not watched", markup=False)
            continue
        draw_history(run, options.out, options.samples, options.epochs, options.stage)
        last = {name: values[-1] for name, values in runs[run.name].items()}
        shares = [last[name] for name in ("on_object", "chance", "same")]
        figures = [NOTHING if share is None else points(share) for share in shares]
        lines.append((run.name, str(last["epoch"]), *figures))
    columns = ["run", "epoch", "on object", "by chance", "kept before"]
    console.print(table(columns, lines, "kept patches at the end (%)"))
    console.print(f"pictures are in {options.out}", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
