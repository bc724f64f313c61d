"""A gallery whose samples have different modalities: by the model's similarity, and as it was before.

    slimreid data synth w
    slimreid train synthetic/sdtps --data.manifest w --train.epochs 10 --seed 0 --out runs/default-seed0
    python research/mixed_gallery.py runs/default-seed0 runs/default-seed1 runs/default-seed2

Writes research/results/mixed_gallery/<run>.json, of the feature `both`: mAP in the mix, mean of the uniform
pairs of subsets, and the share of the first ten answers that have exactly the query's modalities. `products`
is what was done before: the cosine of whole features, absent blocks filled. `own_statistics` scales scores by
how alike different *test* identities are, which no user knows: what better statistics could give. `centred`
takes the mean of the training set out of every block first.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.config.model import BOTH
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import CosineScores
from slimreid.evaluation.query_gallery import select_part, side_rows
from slimreid.evaluation.reports.feature_metrics import Search, feature_metrics
from slimreid.evaluation.reports.missing import DRAWS, missing_matrix, mixed_gallery
from slimreid.files import write_text
from slimreid.inference.features.data import ModelData, open_data
from slimreid.inference.features.extract import Extraction, Features, extract_features
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import Similarity, fit_impostors
from slimreid.modalities import all_subsets

OUT = Path(__file__).parent / "results" / "mixed_gallery"


def products(features: dict[tuple[str, ...], Features], search: Search) -> dict[str, float]:
    """The mix by the cosine of whole features, as it was."""
    found = list(features.values())
    maps, shares = [], []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        sides, subsets = [], []
        for rows in (search.query, search.gallery):
            draw = rng.random((len(found), len(rows))).argmax(axis=0)
            pairs = zip(draw.tolist(), rows.tolist(), strict=True)
            sides.append(np.concatenate([found[n].get(BOTH, np.array([row])) for n, row in pairs]))
            subsets.append(draw)
        result = evaluate_scores(CosineScores(*sides), search.labels())
        there = result.top_index >= 0
        equal = subsets[1][result.top_index] == subsets[0][:, None]
        maps.append(result.map)
        shares.append((equal & there).sum() / there.sum())
    return {"map": float(np.mean(maps)), "equal_share": float(np.mean(shares))}


def with_test_statistics(
    features: dict[tuple[str, ...], Features], search: Search, similarity: Similarity
) -> Similarity:
    """The similarity with the statistics of impostors of the gallery that is searched."""
    who = np.unique([search.samples[row].identity for row in search.gallery], return_inverse=True)[1]
    found = [(part.get(BOTH, search.gallery), who) for part in features.values()]
    return replace(similarity, impostors=fit_impostors(similarity, found))


def _unit_blocks(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Blocks (n, B, C) of features (n, D), each of length 1."""
    blocks = values.reshape(len(values), count, -1)
    return blocks / np.linalg.norm(blocks, axis=2, keepdims=True).clip(1e-12)


def centred(features: Features, of_training: Features, similarities: dict[str, Similarity]) -> Features:
    """Every block at length 1, minus the mean of that block in training."""
    branches = {}
    for kind, values in features.branches.items():
        B = len(similarities[kind].blocks)
        own, training = (_unit_blocks(x, B) for x in (values, of_training.branches[kind]))
        branches[kind] = (own - training.mean(axis=0)).reshape(len(values), -1)
    return replace(features, branches=branches)


def measure_centred(loaded: LoadedModel, data: ModelData, search: Search) -> dict[str, Any]:
    """The mix with centred features, and with statistics of centred features of the training set."""
    subsets = all_subsets(loaded.modalities)
    whole = open_data(loaded)
    samples = whole.manifest.select("train")
    trained = replace(whole, manifest=whole.manifest.with_samples(samples))
    who = np.unique([sample.identity for sample in samples], return_inverse=True)[1]
    similarities = {kind: loaded.similarity(kind) for kind in loaded.impostors}
    tested, training = (extract_features(loaded, d, subsets, Extraction(workers=0)) for d in (data, trained))
    seen_whole = training[subsets[-1]]
    tested = {s: centred(found, seen_whole, similarities) for s, found in tested.items()}
    training = {s: centred(found, seen_whole, similarities) for s, found in training.items()}
    similarity = similarities[BOTH]
    table = fit_impostors(similarity, [(found.get(BOTH), who) for found in training.values()])
    fitted = replace(similarity, impostors=table)
    complete = feature_metrics(tested[subsets[-1]], BOTH, search, fitted).result
    matrix = missing_matrix(tested, BOTH, search, fitted, complete, show_progress=False)
    return {**matrix.to_dict()["mixed"], "complete_map": float(matrix.map[-1, -1])}


def measure(run: Path) -> dict[str, Any]:
    loaded = load(run)
    data, _ = select_part(open_data(loaded), "test")
    samples = data.manifest.samples
    query, gallery = side_rows(samples, "test")
    search = Search(samples, query, gallery, data.manifest.protocol)
    features = extract_features(loaded, data, all_subsets(loaded.modalities), Extraction(workers=0))
    similarity = loaded.similarity(BOTH)
    complete = feature_metrics(features[loaded.modalities], BOTH, search, similarity).result
    matrix = missing_matrix(features, BOTH, search, similarity, complete, show_progress=False)
    own = with_test_statistics(features, search, similarity)
    scaled = mixed_gallery(features, BOTH, search, own, matrix)
    assert scaled is not None
    return {
        "seed": loaded.config.seed,
        "epochs": loaded.config.train.epochs,
        "queries": len(query),
        "gallery": len(gallery),
        "fingerprint": loaded.fingerprint,
        **matrix.to_dict()["mixed"],
        "complete_map": float(matrix.map[-1, -1]),
        "products": products(features, search),
        "own_statistics": {"map": scaled.map, "equal_share": scaled.equal_share},
        "centred": measure_centred(loaded, data, search),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure retrieval in a mixed gallery.")
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        found = measure(run)
        write_text(OUT / f"{run.name}.json", json.dumps(found, indent=2) + "\n")
        print(run.name, {name: value for name, value in found.items() if name != "maps"})


if __name__ == "__main__":
    main()
