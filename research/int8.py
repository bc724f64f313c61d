"""What int8 costs: mAP of trained models in torch, exported in float32, and exported in int8.

    python research/int8.py runs/baseline-seed0 runs/slim-seed0 --data market/manifest.csv

Exports each run in both precisions (to a folder that is removed again), measures all three ways on the test
part of the manifest, torch in float32 too, and writes research/results/int8/RUN.json. A run whose result is
there, of the same weights, manifest and bounds of the export, is not measured again. Prints a table with
a row per run and, for runs called NAME-seedN, one over their seeds; differences are to torch, with paired
95 % intervals over identities.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.cli.console import console, ending_in_one_line
from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import PairedDifference, nullable, paired_bootstrap
from slimreid.evaluation.reports.evaluate import EvaluationOptions, evaluate_model
from slimreid.evaluation.reports.formatting import markdown_table
from slimreid.evaluation.reports.writing import dump
from slimreid.exporting.export import export
from slimreid.exporting.int8_layers import MOST_ERROR
from slimreid.exporting.quantise import SCALES
from slimreid.exporting.samples import MOST_SAMPLES
from slimreid.files import file_digest, write_text
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load, load_trained
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.trained_model import TrainedModel
from slimreid.runs.record import QueryPrecisions

OUT = Path(__file__).resolve().parent / "results" / "int8"
TORCH, PRECISIONS = "torch", ("float32", "int8")
HEAD = (
    "model",
    "seed",
    "mAP, torch",
    "Δ float32",
    "mAP, int8",
    "Δ int8",
    "Δ int8, 95 %",
    "float32 layers",
    "smallest cosine",
    "mean cosine",
)


def in_float32(loaded: TrainedModel) -> TrainedModel:
    """The same model, computing in float32 whatever it was trained in."""
    config = replace(loaded.config, train=replace(loaded.config.train, precision="fp32"))
    return replace(loaded, card=replace(loaded.card, config=config))


def figures(loaded: LoadedModel, manifest: Path) -> dict[str, Any]:
    """Retrieval by one model."""
    options = EvaluationOptions(features="both")
    found = evaluate_model(loaded, manifest, options, Extraction(workers=0, show_progress=False))
    result = found.scores.result
    return {
        "map": result.map,
        "rank1": result.rank(1),
        "protocol": result.protocol,
        "gallery": len(found.gallery),
        "query_ids": [str(name) for name in result.query_ids],
        "average_precision": nullable(result.average_precision),
    }


def measure(loaded: TrainedModel, manifest: Path, max_loss: float) -> dict[str, Any]:
    """All three ways of one model."""
    loaded = in_float32(loaded)
    ways = {TORCH: figures(loaded, manifest)}
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            out = Path(folder) / precision
            card = export(loaded, out, precision=precision, data=manifest, max_loss=max_loss, force=True)
            ways[precision] = figures(load(out), manifest) | {
                "checked_on": card.check["source"],
                "cosine": card.check["cosine"],
                "mean_cosine": min(each["mean"] for each in card.check["agreements"]),
                "kept": list(card.check["kept"]),
                "ties": sum(each["ties"] for each in card.check["agreements"]),
                "faults": list(card.check["faults"]),
                "float_layers": list(card.float_layers),
                "weight_bytes": (out / "weights.bin").stat().st_size,
                "provenance": dict(card.provenance),
            }
    return ways


def result_of(run: Path, manifest: Path, results: Path, max_loss: float) -> dict[str, Any]:
    """The result of a run, read where it is there already."""
    loaded = load_trained(run)
    key = {
        "weights": loaded.fingerprint,
        "manifest": file_digest(manifest),
        "max_loss": max_loss,
        "most_samples": MOST_SAMPLES,
        "most_error": MOST_ERROR,
        "scales": SCALES,
    }
    path = results / f"{run.resolve().name}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] == key:
            return found
    name, _, _ = path.stem.rpartition("-seed")
    found = {
        "label": name or path.stem,
        "seed": loaded.config.seed,
        "key": key,
        "ways": measure(loaded, manifest, max_loss),
    }
    write_text(path, dump(found) + "\n")
    return found


def precisions(group: Sequence[dict[str, Any]], way: str) -> QueryPrecisions:
    """Average precision of each query, the mean over runs that differ by their seed."""
    found = [each["ways"][way] for each in group]
    first = found[0]
    if any(each["query_ids"] != first["query_ids"] for each in found):
        raise DataError(f"{group[0]['label']}: its runs were measured on different queries")
    mean = np.mean([np.array(each["average_precision"], np.float64) for each in found], axis=0)
    return QueryPrecisions(first["protocol"], np.array(first["query_ids"]), mean)


def row(group: Sequence[dict[str, Any]]) -> list[str]:
    """The cells of one run, or of several that differ by their seed."""
    torch, *exported = (precisions(group, way) for way in (TORCH, *PRECISIONS))
    plain, int8 = (paired_bootstrap(torch, each) for each in exported)
    found = [each["ways"]["int8"] for each in group]
    layers = sorted({len(each["float_layers"]) for each in found})
    return [
        group[0]["label"],
        str(group[0]["seed"]) if len(group) == 1 else f"all {len(group)}",
        f"{100 * torch.map:.2f}",
        signed(plain.value),
        f"{100 * exported[1].map:.2f}",
        signed(int8.value),
        interval(int8),
        " to ".join(dict.fromkeys(str(each) for each in (layers[0], layers[-1]))),
        f"{min(each['cosine'] for each in found):.4f}",
        f"{min(each['mean_cosine'] for each in found):.4f}",
    ]


def signed(share: float) -> str:
    return f"{100 * share:+.2f}".replace("-", "−")


def interval(found: PairedDifference) -> str:
    return f"{signed(found.low)} to {signed(found.high)}"


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """One row per run, and one over the seeds where there are several."""
    rows = []
    for label in dict.fromkeys(each["label"] for each in results):
        group = [each for each in results if each["label"] == label]
        rows += [row([each]) for each in group]
        if len(group) > 1:
            rows.append(row(group))
    return markdown_table(HEAD, rows).strip()


@ending_in_one_line
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--data", type=Path, required=True, help="manifest with query and gallery")
    parser.add_argument("--results", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--max-loss", type=float, default=0.5, help="points of mAP that int8 may lose")
    args = parser.parse_args(arguments)
    found = []
    for run in args.runs:
        found.append(result_of(run, args.data, args.results, args.max_loss))
        for precision in PRECISIONS:
            for fault in found[-1]["ways"][precision]["faults"]:
                console.print(f"{run.name}, {precision}: {fault}", soft_wrap=True)
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
