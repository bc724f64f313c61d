"""True match rates at 1 % false matches: as reported, counted one by one, and from a histogram as before.

    python research/exact_rates.py runs/quickstart-seed0 runs/quickstart-seed1 runs/quickstart-seed2

Writes research/results/exact_rates/<run>.json. Features with all modalities are compared by cosine; those of
these models lie close together. `bins` takes scores from 65,536 bins of 3.1e-5 between −1 and 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slimreid.config.model import BOTH
from slimreid.evaluation.metrics.retrieval import evaluate_retrieval
from slimreid.evaluation.query_gallery import retrieval_labels, select_part, side_rows
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load

OUT = Path(__file__).parent / "results" / "exact_rates"
RATE, BINS = 0.01, 65_536
Floats = NDArray[np.float32]


def one_by_one(true: Floats, false: Floats) -> float:
    """True match rate at the lowest score that at most the given share of false pairs reaches."""
    allowed = int(RATE * len(false))
    barrier = np.sort(false)[::-1][allowed]  # this one must stay below
    return float((true > barrier).mean())


def from_bins(true: Floats, false: Floats) -> float:
    """The same with the threshold at a lower edge of bins."""
    number = [np.floor((scores.astype(np.float64) + 1) / 2 * BINS) for scores in (true, false)]
    edges = np.unique(np.concatenate(number))
    fits = [edge for edge in edges if (number[1] >= edge).mean() <= RATE]
    return float((number[0] >= fits[0]).mean()) if fits else 0.0


def measure(run: Path) -> dict[str, float]:
    loaded = load(run)
    data, _ = select_part(open_data(loaded), "test")
    samples, protocol = data.manifest.samples, data.manifest.protocol
    rows = side_rows(samples, "test")
    labels = retrieval_labels(samples, rows[0], rows[1], protocol)
    found = extract_features(loaded, data, options=Extraction(workers=0))[data.manifest.modalities]
    whole = found.get(BOTH if BOTH in loaded.model.sizes else "original").numpy()
    query, gallery = whole[rows[0]], whole[rows[1]]
    result = evaluate_retrieval(query, gallery, labels, top_k=len(gallery), roc=True)
    there = result.top_index >= 0
    assert result.roc is not None
    true, false = (result.top_score[there & (result.top_is_match == same)] for same in (True, False))
    return {
        "lowest_cosine": float(result.top_score[there].min()),
        "reported": result.roc.operating_points([RATE])[0].true_match_rate,
        "one_by_one": one_by_one(true, false),
        "bins": from_bins(true, false),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare match rates with every pair counted one by one.")
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        found = measure(run)
        write_text(OUT / f"{run.name}.json", json.dumps(found, indent=2) + "\n")
        print(run.name, found)


if __name__ == "__main__":
    main()
