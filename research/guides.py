"""How the choice of patches changes when a guide is absent.

    python research/guides.py RUN [--data MANIFEST] [--split test] [--limit 128] [--out FILE.json]

For every modality: of the patches kept when all modalities guide the choice, the share that is also kept when
only some of the others do (points of 100; chance is the share kept). Samples that have all modalities are
shown to the model once per subset; with --stage, at one stage of token reduction in the backbone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from guide_scores import guide_overlaps

from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.evaluation.query_gallery import select_part
from slimreid.evaluation.reports.formatting import points
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.load import load


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a run, or a model file")
    parser.add_argument("--data", type=Path, default=None, help="another manifest than the run's own")
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--limit", type=int, default=128, help="at most so many samples, evenly spread")
    parser.add_argument("--stage", type=int, default=-1, help="stage in the backbone, from 0")
    parser.add_argument("--out", type=Path, default=None, help="also write the shares, 0 to 1, as JSON")
    options = parser.parse_args(arguments)
    loaded = load(options.run)
    data, _ = select_part(open_data(loaded, options.data), options.split)
    found = guide_overlaps(loaded, data, limit=options.limit, stage=options.stage)
    names = loaded.modalities
    rows = []
    for left in found.subsets:
        shares = (found.shares[name].get(left, float("nan")) for name in names)
        rows.append(("+".join(left) or "none", *map(points, shares)))
    console.print(table(["guides", *names], rows, "kept as with all guides (%)"))
    console.print(f"{found.samples} samples; by chance {points(found.chance)}")
    if options.out:
        write_text(options.out, json.dumps(found.to_dict(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
