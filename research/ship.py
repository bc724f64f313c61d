"""Put a trained model into the package: export it, store it small, check it, measure it, write its card.

    python research/ship.py runs/people-tiny/slim --name people-tiny
    python research/ship.py --card --name people-tiny --looks research/results/other_looks/people-tiny.json

Weights are rounded to float16, then exported in float32 and int8 over one file of weights (see
`research/compact.py`) into src/slimreid/pretrained/NAME. The export is checked against the rounded
model, the small form against the export. Both precisions are measured on the test split in every subset of
the modalities (research/results/NAME/subsets.json). `--card` only writes the model card anew, into the folder
and docs/NAME.md, from that file and those of research/other_looks.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from compact import compact, round_weights
from ship_card import write_card

from slimreid.cli.console import ending_in_one_line, say
from slimreid.config import Config
from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ModelError
from slimreid.evaluation.query_gallery import select_part, side_rows
from slimreid.evaluation.reports.feature_metrics import Search, feature_metrics
from slimreid.evaluation.reports.writing import dump
from slimreid.exporting.export import export
from slimreid.exporting.samples import noise_samples
from slimreid.files import write_text
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load, load_trained
from slimreid.inference.model_card import CARD_NAME, INT8_CARD_NAME, MODEL_NAME
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.inference.similarity import feature_kinds
from slimreid.inference.trained_model import TrainedModel, write_model
from slimreid.modalities import all_subsets
from slimreid.runs.starts import git_commit

ROOT = Path(__file__).parents[1]
MOST_BYTES = 12_000_000
"""Of a model in the package."""
MOST_DIFFERENCE = 1e-4
"""Between features of the exported graphs and of the small form: only the order of sums may differ."""
PRECISIONS = {"float32": CARD_NAME, "int8": INT8_CARD_NAME}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="finished run, or model file")
    parser.add_argument("--name", default=DEFAULT_MODEL, help="name by which the model is loaded")
    parser.add_argument("--data", type=Path, help="manifest to check and measure on; default: the run's")
    parser.add_argument("--dataset", default="market1501", help="put before names of identities and cameras")
    parser.add_argument("--max-loss", type=float, default=0.5, help="points of mAP that int8 may lose")
    parser.add_argument(
        "--looks", type=Path, nargs="*", default=[], help="results of research/other_looks.py"
    )
    parser.add_argument("--card", action="store_true", help="only write the model card anew")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to write into")
    options = parser.parse_args(arguments)
    if not options.card and options.run is None:
        parser.error("give the run to ship, or --card")
    return options


def plain_config(config: Config) -> Config:
    """The options of a run without the places of the machine it was made on."""
    return replace(
        config,
        data=replace(config.data, manifest="", cache="none", cache_dir=None),
        model=replace(config.model, pretrained=None),
        train=replace(config.train, init_from=None, teacher=None, threads=None),
        loss=replace(config.loss, distill_weight=0.0),
    )


def rounded_model(loaded: TrainedModel, dataset: str, path: Path) -> TrainedModel:
    """The model with weights that float16 can hold, and names that nobody's data has by chance."""
    card = replace(
        loaded.card,
        config=plain_config(loaded.config),
        identities=tuple(f"{dataset}/{name}" for name in loaded.identities),
        cameras=tuple(f"{dataset}/{name}" for name in loaded.cameras),
    )
    state = round_weights(loaded.model.state_dict())
    write_model(path / MODEL_NAME, state, card, loaded.impostors)
    return load_trained(path)


def check_same(small: OnnxEngine, whole: OnnxEngine, loaded: TrainedModel) -> float:
    """The largest difference of features in any subset; raises `ModelError` where it is too large."""
    noise = noise_samples(loaded).images
    worst = 0.0
    for subset in all_subsets(loaded.modalities):
        images = {name: noise[name][:4] for name in subset}
        first, second = small.features(images), whole.features(images)
        worst = max([worst, *(float(np.abs(first[kind] - second[kind]).max()) for kind in first)])
    if worst > MOST_DIFFERENCE:
        raise ModelError(f"{small.path}: differs from its export by {worst:.2g}")
    return worst


def pack(loaded: TrainedModel, out: Path, data: Path, dataset: str, max_loss: float) -> dict[str, Any]:
    """Write the small form of a model to `out`, in place of what is there; what was found out about it."""
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rounded = rounded_model(loaded, dataset, folder / "run")
        for precision in ("float32", "int8"):
            card = export(rounded, folder / precision, precision=precision, data=data, max_loss=max_loss)
            facts[precision] = {"float_layers": list(card.float_layers), "check": dict(card.check)}
        compact(folder / "float32", folder / "int8", folder / "both")
        for precision, name in PRECISIONS.items():
            small, whole = OnnxEngine(folder / "both" / name), OnnxEngine(folder / precision)
            facts[precision]["difference"] = check_same(small, whole, rounded)
        size = sum(path.stat().st_size for path in (folder / "both").iterdir())
        if size > MOST_BYTES:
            raise ModelError(f"{size:,} bytes are more than the {MOST_BYTES:,} that a model may have")
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder / "both", out)
    return {"bytes": size, **facts}


def measure(model: Path, data: Path) -> dict[str, Any]:
    """mAP, its interval and rank-1 in every subset of the modalities, on the test split of a manifest."""
    loaded = load(model)
    chosen, _ = select_part(open_data(loaded, data), "test")
    samples = chosen.manifest.samples
    kind = feature_kinds(loaded)[-1]
    subsets = all_subsets(chosen.manifest.modalities)
    features = extract_features(loaded, chosen, subsets, Extraction(workers=0))
    found = {}
    for subset in subsets:
        rows = side_rows(samples, "test", features[subset].rows.tolist())
        search = Search(samples, *rows, chosen.manifest.protocol)
        scores = feature_metrics(features[subset], kind, search, loaded.similarity(kind))
        found["+".join(subset)] = {
            "map": scores.result.map,
            "low": scores.interval.low,
            "high": scores.interval.high,
            "rank1": scores.result.rank(1),
            "queries": int(scores.result.valid_queries),
            "gallery": len(rows[1]),
        }
    return found


def facts_of(loaded: TrainedModel) -> dict[str, Any]:
    """What the card says of how a model was made."""
    config = loaded.config
    return {
        "backbone": config.model.backbone,
        "size": list(config.transforms.size),
        "stride": list(config.model.stride) if config.model.stride else None,
        "reduction": config.model.reduction,
        "fusion": config.model.fusion,
        "identities": len(loaded.identities),
        "epochs": loaded.card.epoch,
        "select_on": loaded.card.select_on,
        "origin": loaded.card.origin,
        "parameters": sum(p.numel() for p in loaded.model.backbone.parameters()),
        "weights": loaded.fingerprint,
    }


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    folder = options.root / "src" / "slimreid" / "pretrained" / options.name
    results = options.root / "research" / "results" / options.name / "subsets.json"
    if not options.card:
        loaded = load_trained(options.run)
        data = options.data or Path(loaded.config.data.manifest)
        packed = pack(loaded, folder, data, options.dataset, options.max_loss)
        say(f"{folder}: {packed['bytes'] / 1e6:.2f} MB")
        figures: Mapping[str, Any] = {
            "name": options.name,
            "commit": git_commit(),
            "data": open_data(loaded, data).name,
            "model": facts_of(loaded),
            "packed": packed,
            "subsets": {precision: measure(folder / card, data) for precision, card in PRECISIONS.items()},
        }
        write_text(results, dump(figures) + "\n")
        say(f"written: {results}")
    found = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else None
    for path in write_card(options.root, options.name, found, options.looks):
        say(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
