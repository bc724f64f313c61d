"""A gallery whose samples have different modalities: by the model's similarity, and as it was before.

    slimreid data synth w
    slimreid train synthetic/sdtps --data.manifest w --train.epochs 10 --seed 0 --out runs/seed0   # 1, 2
    python research/mixed_gallery.py runs/seed0 runs/seed1 runs/seed2

Writes research/results/mixed_gallery/<run>.json: mAP in the mix, mean of the uniform pairs of subsets, and
the share of the first ten answers that have exactly the query's modalities. `products` is what was done
before: the cosine of whole features, absent blocks filled.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import CosineScores
from slimreid.evaluation.query_gallery import SPLITS_OF, select_part
from slimreid.evaluation.reports.feature_metrics import Search
from slimreid.evaluation.reports.missing import DRAWS, missing_matrix
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, Features, extract_features
from slimreid.inference.load import load
from slimreid.modalities import all_subsets

OUT = Path(__file__).parent / "results" / "mixed_gallery"


def products(features: dict[tuple[str, ...], Features], kind: str, search: Search) -> dict[str, float]:
    """The mix by the cosine of whole features, as it was."""
    found = list(features.values())
    maps, shares = [], []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        sides, subsets = [], []
        for rows in (search.query, search.gallery):
            draw = rng.random((len(found), len(rows))).argmax(axis=0)
            pairs = zip(draw.tolist(), rows.tolist(), strict=True)
            sides.append(np.concatenate([found[n].get(kind, np.array([row])) for n, row in pairs]))
            subsets.append(draw)
        result = evaluate_scores(CosineScores(*sides), search.labels())
        there = result.top_index >= 0
        equal = subsets[1][result.top_index] == subsets[0][:, None]
        maps.append(result.map)
        shares.append((equal & there).sum() / there.sum())
    return {"map": float(np.mean(maps)), "equal_share": float(np.mean(shares))}


def measure(run: Path) -> dict[str, Any]:
    loaded = load(run)
    data, _ = select_part(open_data(loaded), "test")
    samples = data.manifest.samples
    query, gallery = (
        np.array([i for i, s in enumerate(samples) if s.split == split], dtype=np.int64)
        for split in (SPLITS_OF["test"][0], SPLITS_OF["test"][-1])
    )
    search = Search(samples, query, gallery, data.manifest.protocol)
    features = extract_features(loaded, data, all_subsets(loaded.modalities), Extraction(workers=0))
    results: dict[str, Any] = {}
    for kind in loaded.impostors:
        matrix = missing_matrix(features, kind, search, loaded.similarity(kind), 0.0, show_progress=False)
        results[kind] = {
            **matrix.to_dict()["mixed"],
            "complete_map": float(matrix.map[-1, -1]),
            "products": products(features, kind, search),
        }
    return {
        "seed": loaded.config.seed,
        "epochs": loaded.config.train.epochs,
        "queries": len(query),
        "gallery": len(gallery),
        "fingerprint": loaded.fingerprint,
        "features": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure retrieval in a mixed gallery.")
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        found = measure(run)
        write_text(OUT / f"{run.name}.json", json.dumps(found, indent=2) + "\n")
        for kind, row in found["features"].items():
            print(run.name, kind, {name: value for name, value in row.items() if name != "maps"})


if __name__ == "__main__":
    main()
