"""Who is this? Error rates of open-set identification on the synthetic world.

    python benchmarks/identify.py --folder identify                     # three seeds, about five minutes each
    python benchmarks/identify.py --folder identify --out research/results/identify
    python benchmarks/identify.py --folder small --fast                 # shows the steps only

For each seed a world of 560 people (four cameras, four images by each, difficulty 0.3) is generated, `sdtps`
is trained for five epochs on 240 of them, and the 320 others are divided:

| people | role                                                                                    |
|-------:|-----------------------------------------------------------------------------------------|
|    160 | enrolled with the images of two cameras each, searched for with those of the two others |
|     80 | strangers that thresholds are chosen on                                                 |
|     80 | strangers that the promised rate is checked on                                          |

Rows of the gallery are complete, or each has a random subset of the modalities. Queries have each subset in
turn, or a random one each. Scores are the plain cosine, on the model's own scale (from training identities),
or on the scale of the first strangers; the threshold is always that of the query's subset. Tracklets are the
images of one person by one camera. Intervals are over the people of all seeds. What is in the folder already
is not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identify_people import FAST, FULL, Ints, People, gather, prepare
from slimreid.cli.console import print_table, say
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.files import write_text
from slimreid.gallery.decisions.pooling import pool_shots
from slimreid.gallery.decisions.rates import (
    LEAST_IDENTITIES,
    Estimate,
    false_negative,
    false_positive,
    needed_searches,
    rate_estimate,
    threshold_estimate,
)
from slimreid.gallery.decisions.scale import Samples, site_similarity
from slimreid.gallery.decisions.searches import Searches
from slimreid.inference.similarity import Prepared, Similarity

Bools = NDArray[np.bool_]

COSINE, TRAINING, SITE = "cosine", "training", "site"
COMPLETE, RANDOM = "complete", "random"
"""What rows have: all modalities, or a random subset each. Queries may have random ones as well."""
SINGLE, TRACKLET, UNWEIGHTED = "single image", "tracklet", "tracklet, unweighted"


@dataclass(frozen=True)
class Case:
    """One column of one row of the tables."""

    rows: str
    scale: str
    query: str
    shots: str = SINGLE
    rate: float = 0.01

    @property
    def key(self) -> str:
        """As it is called in the JSON."""
        shots = "" if self.shots == SINGLE else f", {self.shots}"
        return f"rows {self.rows}, scale {self.scale}, query {self.query}{shots}, FPIR {self.rate:g}"


@dataclass(frozen=True, eq=False)
class Outcome:
    """Errors of searches for enrolled people and for held-out strangers at the threshold of a case."""

    searches: int
    """For strangers, behind the threshold."""
    missed: Bools | None
    enrolled: NDArray[np.str_]
    accepted: Bools | None
    strangers: NDArray[np.str_]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; None where there were too few searches for a threshold."""
        return {
            "searches_behind_threshold": self.searches,
            "fnir": _estimate(self.missed, self.enrolled),
            "mated_searches": len(self.enrolled),
            "fpir": _estimate(self.accepted, self.strangers),
            "held_out_searches": len(self.strangers),
        }


def _estimate(wrong: Bools | None, identity: NDArray[np.str_]) -> dict[str, float] | None:
    return None if wrong is None else rate_estimate(wrong, identity).to_dict()


def scales(people: People) -> dict[str, Similarity]:
    """The plain cosine, the model's own scale, and that of the strangers that thresholds are chosen on."""
    S, at = len(people.names), people.strangers
    samples = Samples(
        people.features[:, at].reshape(S * len(at), -1),
        np.repeat(people.has, len(at), axis=0),
        np.tile(people.identity[at], S),
    )
    trained = people.similarity
    plain = Similarity(trained.modalities, trained.blocks)
    return {COSINE: plain, TRAINING: trained, SITE: site_similarity(trained, samples)}


def queries(
    people: People, similarity: Similarity, at: Ints, subset: Ints, shots: str
) -> tuple[Prepared, NDArray[np.str_]]:
    """Samples `at` (n,) in these subsets, or their tracklets by one camera, and who they show."""
    features, present = people.features[subset, at], people.has[subset]
    if shots == SINGLE:
        return similarity.prepare(features, present), people.identity[at]
    where = np.char.add(np.char.add(people.identity[at], " "), people.camera[at])
    first, member = np.unique(where, return_index=True, return_inverse=True)[1:]
    weight = (people.quality[at] * present).sum(axis=1) / present.sum(axis=1) if shots == TRACKLET else None
    pooled = pool_shots(similarity, features, present, weight, member.reshape(-1))
    return similarity.prepare(pooled.features, pooled.present), people.identity[at][first]


def measure(people: People) -> tuple[dict[Case, Outcome], dict[str, float]]:
    """Outcomes of all cases, and mAP by scale where rows and queries have random subsets."""
    found, maps = {}, {}
    for scale, similarity in scales(people).items():
        for kind in (COMPLETE, RANDOM):
            subset = (
                np.full(len(people.rows), len(people.names) - 1)
                if kind == COMPLETE
                else draw_subsets(people, people.rows)
            )
            rows = similarity.prepare(people.features[subset, people.rows], people.has[subset])
            for query in (*people.names.tolist(), RANDOM):
                for shots in (SINGLE, TRACKLET, UNWEIGHTED) if scale == SITE else (SINGLE,):
                    for rate, outcome in _search(people, similarity, rows, query, shots):
                        found[Case(kind, scale, query, shots, rate)] = outcome
        query_side, _ = queries(people, similarity, people.mated, draw_subsets(people, people.mated), SINGLE)
        labels = Labels(
            people.identity[people.mated],
            people.identity[people.rows],
            people.camera[people.mated],
            people.camera[people.rows],
        )
        maps[scale] = evaluate_scores(SimilarityScores(similarity, query_side, rows), labels).map
    return found, maps


def draw_subsets(people: People, at: Ints) -> Ints:
    """A random subset for each sample; the same one whenever it is asked for."""
    drawn = np.random.default_rng(0).integers(0, len(people.names), len(people.identity))
    return drawn[at]


def search_outcomes(
    scores: NDArray[np.float32], who: NDArray[np.str_], row_ids: NDArray[np.str_], subset: NDArray[np.str_]
) -> Searches:
    """What Q queries found among G rows: scores (Q, G), NaN where a pair shares no modality."""
    same = who[:, None] == row_ids[None, :]
    return Searches(who, _best(scores, ~same), _best(scores, same), subset)


def _best(scores: NDArray[np.float32], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Highest counted score of each row (Q,); NaN where none counts."""
    counted = counted & ~np.isnan(scores)
    highest = np.where(counted, scores.astype(np.float64), -np.inf).max(axis=1, initial=-np.inf)
    return np.where(counted.any(axis=1), highest, np.nan)


def _search(
    people: People, similarity: Similarity, rows: Prepared, query: str, shots: str
) -> Iterator[tuple[float, Outcome]]:
    """Outcomes at FPIR 1 % and 0.3 %, with a threshold for queries of this subset."""
    parts: dict[str, Searches] = {}
    for name in ("mated", "strangers", "held_out"):
        at = getattr(people, name)
        chosen = (
            draw_subsets(people, at)
            if query == RANDOM
            else np.full(len(at), people.names.tolist().index(query))
        )
        prepared, who = queries(people, similarity, at, chosen, shots)
        names = np.full(len(who), query)
        parts[name] = search_outcomes(
            similarity.scores(prepared, rows), who, people.identity[people.rows], names
        )
    behind, held_out = (parts[n][parts[n].comparable] for n in ("strangers", "held_out"))
    mated = parts["mated"]
    for rate in (0.01, 0.003):
        threshold: Estimate | None = None
        if len(behind) >= needed_searches(rate) and len(np.unique(behind.identity)) >= LEAST_IDENTITIES:
            threshold = threshold_estimate(behind.other, behind.identity, rate)
        t = None if threshold is None else threshold.value
        yield (
            rate,
            Outcome(
                len(behind),
                None if t is None else false_negative(mated, t),
                mated.identity,
                None if t is None else false_positive(held_out, t),
                held_out.identity,
            ),
        )


def join(outcomes: Sequence[Outcome]) -> Outcome:
    """Outcomes of several seeds as one; people of different worlds are different people."""

    def together(name: str) -> Any:
        parts = [getattr(outcome, name) for outcome in outcomes]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    def named(name: str) -> NDArray[np.str_]:
        return np.concatenate([np.char.add(f"{n} ", getattr(o, name)) for n, o in enumerate(outcomes)])

    searches = sum(outcome.searches for outcome in outcomes)
    return Outcome(searches, together("missed"), named("enrolled"), together("accepted"), named("strangers"))


def show(found: Mapping[Case, Outcome], maps: Mapping[str, Sequence[float]], tracklet: int) -> None:
    """The tables: raw against calibrated, promised against achieved, one image against several."""
    subsets = list(dict.fromkeys(case.query for case in found))
    for rows in (COMPLETE, RANDOM):
        cells = []
        for query in subsets:
            by_scale = [found[Case(rows, scale, query)] for scale in (COSINE, TRAINING, SITE)]
            cells.append([query, *map(_fnir, by_scale), _fpir(by_scale[-1]), by_scale[-1].searches])
        columns = ["query", *(f"FNIR {s}" for s in (COSINE, TRAINING, SITE)), "FPIR achieved", "searches"]
        print_table(columns, cells, f"rows {rows}: FNIR at a promised FPIR of 1 %, by scale of the scores")
        cells = []
        for query in subsets:
            by_shots = [found[Case(rows, SITE, query, shots)] for shots in (SINGLE, TRACKLET, UNWEIGHTED)]
            cells.append([query, *map(_fnir, by_shots), _fpir(by_shots[1]), by_shots[1].searches])
        columns = ["query", SINGLE, f"{TRACKLET} of {tracklet}", UNWEIGHTED, "FPIR achieved", "searches"]
        print_table(columns, cells, f"rows {rows}: FNIR at a promised FPIR of 1 %, by number of images")
    for scale, values in maps.items():
        shown = ", ".join(f"{100 * value:.1f}" for value in values)
        say(f"mAP, rows and queries with random subsets, {scale}: {shown}")


def _fnir(outcome: Outcome) -> str:
    return _rate(outcome.missed, outcome.enrolled)


def _fpir(outcome: Outcome) -> str:
    return _rate(outcome.accepted, outcome.strangers)


def _rate(wrong: Bools | None, identity: NDArray[np.str_]) -> str:
    if wrong is None:
        return "too few"
    found = rate_estimate(wrong, identity)
    return f"{100 * found.value:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where worlds and models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--fast", action="store_true", help="a tiny world that only shows the steps")
    parser.add_argument("--out", type=Path, default=None, help="folder for the figures as JSON")
    options = parser.parse_args(arguments)
    size = FAST if options.fast else FULL
    found: dict[Case, list[Outcome]] = {}
    maps: dict[str, list[float]] = {}
    for seed in options.seeds:
        loaded = prepare(options.folder, size, seed)
        people = gather(loaded, seed)
        outcomes, measured = measure(people)
        for case, outcome in outcomes.items():
            found.setdefault(case, []).append(outcome)
        for scale, value in measured.items():
            maps.setdefault(scale, []).append(value)
        if options.out:
            facts = {
                "seed": seed,
                "epochs": loaded.config.train.epochs,
                "fingerprint": loaded.feature_fingerprint,
            }
            _write(options.out / f"seed{seed}.json", facts, outcomes, measured)
    joined = {case: join(outcomes) for case, outcomes in found.items()}
    show(joined, maps, size.world.images_per_camera)
    if options.out:
        _write(options.out / "all.json", {"seeds": list(options.seeds)}, joined, maps)
    return 0


def _write(
    path: Path, facts: Mapping[str, Any], found: Mapping[Case, Outcome], maps: Mapping[str, Any]
) -> None:
    cases = {case.key: outcome.to_dict() for case, outcome in found.items()}
    write_text(path, json.dumps({**facts, "map_random_subsets": dict(maps), "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
