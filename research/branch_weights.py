"""Whether a weight of the second branch, chosen on val, makes the joint feature better.

    python research/branch_weights.py RUN [RUN ...] [--out FILE.json]

The joint feature is [original ; w · second]. For every run the weight with the best mAP on val is taken, and
the joint feature with it is compared with w = 1 on the test set; the last line is over all runs, query by
query (95 % interval over identities).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.config.model import ORIGINAL
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.result import RetrievalResult, paired_bootstrap
from slimreid.evaluation.metrics.retrieval import evaluate_retrieval
from slimreid.evaluation.query_gallery import Part, retrieval_labels, select_part, side_rows
from slimreid.evaluation.reports.formatting import points
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.runs.record import QueryPrecisions

WEIGHTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, math.inf)
"""0 is the original branch alone, infinity the second one."""


def weighted_results(loaded: LoadedModel, part: Part, weights: Sequence[float]) -> list[RetrievalResult]:
    """How well the joint feature retrieves with each weight; raises `ConfigError` without a second branch."""
    data, _ = select_part(open_data(loaded), part)
    features = extract_features(loaded, data, options=Extraction(show_progress=False))[
        data.manifest.modalities
    ]
    second = [name for name in features.branches if name != ORIGINAL]
    if not second:
        raise ConfigError(f"{loaded.path}: has no second branch, so there is nothing to weigh")
    samples = data.manifest.samples
    query, gallery = side_rows(samples, part)
    labels = retrieval_labels(samples, query, gallery, data.manifest.protocol)
    found = []
    for weight in weights:
        own, other = (0.0, 1.0) if weight == math.inf else (1.0, weight)
        parts = [own * features.branches[ORIGINAL], other * features.branches[second[0]]]
        joined = np.concatenate(parts, axis=1)[features.position]
        found.append(evaluate_retrieval(joined[query], joined[gallery], labels, top_k=0))
    return found


def over_runs(results: Sequence[RetrievalResult]) -> QueryPrecisions:
    """The mean average precision of each query over runs."""
    mean = np.mean([result.average_precision for result in results], axis=0)
    return QueryPrecisions(results[0].protocol, results[0].query_ids, mean)


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs, or model files")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures, 0 to 1, as JSON")
    options = parser.parse_args(arguments)
    rows, kept, plain, chosen = [], {}, [], []
    for path in options.runs:
        loaded = load(path)
        on_val = [result.map for result in weighted_results(loaded, "val", WEIGHTS)]
        weight = WEIGHTS[int(np.argmax(on_val))]
        first, second, one, best = weighted_results(loaded, "test", (0.0, math.inf, 1.0, weight))
        plain.append(one)
        chosen.append(best)
        rows.append(
            (path.name, *(points(r.map) for r in (first, second, one)), f"{weight:g}", points(best.map))
        )
        kept[path.name] = {
            "weights": [f"{w:g}" for w in WEIGHTS],
            "val": on_val,
            "chosen": f"{weight:g}",
            "test": {"original": first.map, "second": second.map, "one": one.map, "chosen": best.map},
        }
    columns = ["run", "original", "second", "both, w = 1", "w chosen on val", "both with it"]
    console.print(table(columns, rows, "mAP on the test set"))
    gain = paired_bootstrap(over_runs(plain), over_runs(chosen))
    low, high = (points(v) for v in (gain.low, gain.high))
    console.print(f"gain over all runs: {points(gain.value)} ({low} to {high})")
    if options.out:
        write_text(options.out, json.dumps({"runs": kept, "gain": gain.to_dict()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
