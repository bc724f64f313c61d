"""The standard test on other looks: how models hold up under degradations and at simulated sites.

    python research/other_looks.py MODEL [NAME=MODEL ...] --data FOLDER --identities 600:700 --cache looks

The held-out identities are written once per look (`research/looks.py`) into --cache, and every model (a run,
a model file or an exported folder) is measured on each beside the clean set: mAP, rank-1, share of the clean
mAP, and the false match rate at the threshold that gives 1 % on clean images, of other people with
--threshold-identities. Models after the first are compared with it over the same identities. Queries and
gallery have the look both; cameras count as unknown. One JSON per model, a table and a picture.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import looks
from look_results import LookFigures, LookResult, write_result
from look_sets import Source, make_sets, open_source, sets_key
from look_tables import print_results
from looks_plot import looks_plot

from slimreid.cli.console import ending_in_one_line, say
from slimreid.errors import ConfigError
from slimreid.evaluation.reports.evaluate import Evaluation, EvaluationOptions, evaluate_model
from slimreid.evaluation.reports.formatting import points
from slimreid.evaluation.reports.thresholds import Threshold
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import feature_kinds
from slimreid.runs.starts import git_commit
from slimreid.visual.style import save_picture

OUT = Path(__file__).parent / "results" / "other_looks"
RATE = 0.01
"""False match rate for which the threshold is chosen."""


def threshold_at_rate(evaluation: Evaluation) -> float | None:
    """The threshold for `RATE`; None where there are too few false pairs to choose one."""
    found = [p for p in evaluation.scores.operating_points if p.false_match_rate == RATE and p.supported]
    return found[0].threshold if found else None


def figures(evaluation: Evaluation) -> LookFigures:
    """What is kept of an evaluation with one threshold at most."""
    scores = evaluation.scores
    rates = evaluation.thresholds[0] if evaluation.thresholds else None
    return LookFigures(
        map=scores.result.map,
        low=scores.interval.low,
        high=scores.interval.high,
        rank1=scores.result.rank(1),
        false_match_rate=rates.false_match_rate if rates else float("nan"),
        true_match_rate=rates.true_match_rate if rates else float("nan"),
        average_precision=scores.result.average_precision,
    )


def measure(
    name: str,
    loaded: LoadedModel,
    sets: Mapping[str, Path],
    threshold_set: Path,
    key: str,
    facts: Mapping[str, Any],
) -> LookResult:
    """One model on all sets, which `key` names; its features are kept beside their manifests."""
    kind: Any = feature_kinds(loaded)[-1]

    def evaluate(path: Path, *thresholds: Threshold) -> Evaluation:
        kept = path.parent / f"features-{loaded.feature_fingerprint[:12]}"
        options = EvaluationOptions(features=kind, thresholds=thresholds)
        return evaluate_model(loaded, path, options, Extraction(cache=kept, workers=0))

    threshold = threshold_at_rate(evaluate(threshold_set))
    given = () if threshold is None else (Threshold(threshold, chosen_rate=RATE),)
    found = {}
    for look, path in sets.items():
        found[look] = evaluate(path, *given)
        say(f"{name}, {look}: mAP {points(found[look].scores.result.map)}")
    clean = found[looks.CLEAN]
    known = set(loaded.identities) & set(clean.gallery.identities.tolist())
    return LookResult(
        name=name,
        facts={
            "weights": loaded.fingerprint,
            "precision": loaded.precision,
            "size": list(loaded.config.transforms.size),
            "feature": clean.main,
            "modalities": list(clean.modalities),
            "origin": clean.origin,
            "queries": len(clean.query),
            "gallery": len(clean.gallery),
            "identities_trained_on": len(known),
            "threshold": threshold,
            "commit": git_commit(),
            **facts,
        },
        sets=key,
        protocol=clean.protocol,
        query_ids=tuple(clean.query.identities.tolist()),
        looks={look: figures(evaluation) for look, evaluation in found.items()},
    )


def named_models(words: Sequence[str]) -> dict[str, Path]:
    """NAME=PATH or PATH; a path is called by its last folder, or its file. Raises `ConfigError`."""
    found: dict[str, Path] = {}
    for word in words:
        name, sign, path = word.partition("=")
        if not sign or Path(word).exists():
            name, path = "", word
        place = Path(path)
        if not name:
            name = place.resolve().parent.name if place.name == "model.safetensors" else place.resolve().stem
        if name in found:
            raise ConfigError(f"two models are called '{name}'; name them: first={found[name]} second={path}")
        if "/" in name:
            raise ConfigError(f"'{name}' is no name for a result; give NAME=MODEL without a slash in it")
        found[name] = place
    return found


def chosen_looks(words: Sequence[str] | None) -> list[str]:
    """The looks that are measured, clean first; raises `ConfigError` for an unknown one."""
    for word in words or ():
        if word not in looks.LOOKS:
            raise ConfigError(f"--looks {word}: no such look; there are {', '.join(looks.LOOKS)}")
    return [name for name in looks.LOOKS if name == looks.CLEAN or not words or name in words]


def threshold_source(options: argparse.Namespace, source: Source) -> Source:
    """Where the threshold is chosen: the tested people themselves, or others."""
    if options.threshold_identities is None:
        return source
    return open_source(options.data, options.threshold_identities, fast=options.fast)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a run, model file or exported folder")
    parser.add_argument("--data", type=Path, required=True, help="manifest or folder of images")
    parser.add_argument("--identities", help="START:STOP of the sorted identities, for example 600:700")
    parser.add_argument("--threshold-identities", help="others, on whose clean images a threshold is chosen")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the sets and their features")
    parser.add_argument("--looks", nargs="+", help="some of the looks; default: all")
    parser.add_argument("--simulate", action="store_true", help="with simulated nir and tir")
    parser.add_argument("--fast", action="store_true", help="about 1,000 images of the set")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for results and picture")
    return parser.parse_args(arguments)


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    names, models = chosen_looks(options.looks), named_models(options.models)
    loaded = {name: load(path) for name, path in models.items()}
    source = open_source(options.data, options.identities, fast=options.fast)
    other = threshold_source(options, source)
    sets = make_sets(source, options.cache, names, simulate=options.simulate)
    calm = make_sets(other, options.cache, [looks.CLEAN], simulate=options.simulate)[looks.CLEAN]
    key = sets_key(source, simulate=options.simulate)
    facts = {"data": source.name, "threshold_from": other.name}
    results = []
    for name, model in loaded.items():
        result = measure(name, model, sets, calm, key, facts)
        if result.facts["identities_trained_on"]:
            say(f"note: {name} was trained on {result.facts['identities_trained_on']} of these identities")
        ending = f"{source.name}-simulated" if options.simulate else source.name
        write_result(options.out / f"{name}-{ending}.json", result)
        results.append(result)
    print_results(results)
    picture = options.out / f"{ending}.png"
    save_picture(looks_plot(results), picture)
    say(f"written: {options.out}/*-{ending}.json and {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
