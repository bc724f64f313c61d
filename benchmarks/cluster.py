"""Which clustering finds identities best at a calibrated threshold? On the worlds and models of identify.py.

    python benchmarks/cluster.py --folder identify                      # after identify.py with this folder
    python benchmarks/cluster.py --folder identify --out research/results/identify/clusters.json

The strangers that identify.py holds out (80 people, 16 images each) are clustered without names, with all
modalities and with a random subset each. At the thresholds, one in 10, 100 and 333 searches for the other
strangers returns an enrolled person. Figures: F-score, precision and recall of the pairs that
are put together. Average linkage is that of `slimreid.gallery`; the others are scikit-learn's, on the whole
matrix of distances.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering

from identify import COMPLETE, RANDOM, SITE, draw_subsets, scales, search_outcomes
from identify_people import FAST, FULL, Ints, People, gather, prepare
from slimreid.cli.console import print_table
from slimreid.files import write_text
from slimreid.gallery.decisions.clustering import propose_identities
from slimreid.gallery.decisions.rates import threshold_for
from slimreid.inference.similarity import Similarity

RATES = (0.1, 0.01, 0.003)
Floats = NDArray[np.float64]
Figures = dict[str, tuple[float, float, float]]


def linkage(kind: str) -> Callable[[Floats, float], Ints]:
    """Hierarchical clustering of another linkage than ours."""

    def cluster(distance: Floats, limit: float) -> Ints:
        model = AgglomerativeClustering(None, metric="precomputed", linkage=kind, distance_threshold=limit)
        return np.asarray(model.fit_predict(distance))

    return cluster


def hdbscan(distance: Floats, _: float) -> Ints:
    """Needs no threshold, and takes none."""
    return np.asarray(HDBSCAN(min_cluster_size=2, metric="precomputed", copy=True).fit_predict(distance))


OTHERS: Mapping[str, Callable[[Floats, float], Ints]] = {
    "single linkage": linkage("single"),
    "complete linkage": linkage("complete"),
    "DBSCAN, 4 neighbours": lambda d, t: DBSCAN(eps=t, min_samples=4, metric="precomputed").fit_predict(d),
    "HDBSCAN": hdbscan,
}


def pair_figures(labels: Ints, identity: NDArray[np.str_]) -> tuple[float, float, float]:
    """F-score, precision and recall of the pairs that are together; rows of label −1 are alone."""
    alone = np.where(labels < 0, -1 - np.arange(len(labels)), labels)
    together, same = (
        np.triu(values[:, None] == values[None, :], k=1) for values in (alone, np.asarray(identity))
    )
    right = int((together & same).sum())
    precision, recall = right / max(int(together.sum()), 1), right / max(int(same.sum()), 1)
    return (2 * precision * recall / (precision + recall) if right else 0.0), precision, recall


def measure(people: People, similarity: Similarity, kind: str, rate: float) -> Figures:
    """Figures of all methods, for the held-out strangers with all modalities or with random ones."""

    def subset(at: Ints) -> Ints:
        return draw_subsets(people, at) if kind == RANDOM else np.full(len(at), len(people.names) - 1)

    rows, behind, held_out = (
        (people.features[subset(at), at], people.has[subset(at)])
        for at in (people.rows, people.strangers, people.held_out)
    )
    who = people.identity
    scores = similarity(behind[0], rows[0], behind[1], rows[1])
    found = search_outcomes(scores, who[people.strangers], who[people.rows], np.full(len(scores), kind))
    threshold = threshold_for(found.other[found.comparable], rate)
    if threshold is None:
        return {}
    wanted = who[people.held_out]
    ours = propose_identities(similarity, held_out[0], threshold, held_out[1])
    figures = {"average linkage": pair_figures(ours.labels, wanted)}
    scores = similarity(held_out[0], held_out[0], held_out[1], held_out[1]).astype(np.float64)
    distance = np.nanmax(scores) - np.nan_to_num(scores, nan=np.nanmin(scores))
    np.fill_diagonal(distance, 0)
    distance = (distance + distance.T) / 2
    for name, cluster in OTHERS.items():
        figures[name] = pair_figures(cluster(distance, np.nanmax(scores) - threshold), wanted)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where worlds and models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--fast", action="store_true", help="a tiny world that only shows the steps")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures as JSON")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=FutureWarning, module="sklearn")
    found: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for seed in options.seeds:
        people = gather(prepare(options.folder, FAST if options.fast else FULL, seed), seed)
        similarity = scales(people)[SITE]
        for kind in (COMPLETE, RANDOM):
            for rate in RATES:
                case = found.setdefault(f"modalities {kind}, FPIR {rate:g}", {})
                for name, figures in measure(people, similarity, kind, rate).items():
                    case.setdefault(name, []).append(figures)
    rows = [
        [case, name, *(f"{100 * value:.1f}" for value in np.mean(values, axis=0))]
        for case, methods in found.items()
        for name, values in methods.items()
    ]
    print_table(["threshold", "method", "F-score", "precision", "recall"], rows, "pairs, mean over seeds")
    if options.out:
        write_text(options.out, json.dumps({"seeds": list(options.seeds), "cases": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
