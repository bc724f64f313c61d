"""What adapting to a site brings without labels: nothing, one mean, a mean per camera, new batch statistics.

    python research/adapt.py RUN SITE [SITE ...] --home data/market1501 --images 10 50 200

Each site is a manifest (or a set of research/other_looks.py) whose test identities are cut in two: unlabelled
images of the first part adapt the model, the second is searched. Compared with the model as it is:

| method   | what is done                                                                            |
|----------|-----------------------------------------------------------------------------------------|
| global   | one mean feature of the site is subtracted                                              |
| camera   | the mean of each camera, as it was counted                                              |
| shrunk   | the same, drawn to the mean of the site where images are few: `slimreid adapt`           |
| bnneck   | mean and variance of the BNNeck are counted anew on the site (`model.neck_feature: after`) |

The false match rate is that at the score which 1 % of the false pairs of --home reach, of the model as it is.
One JSON per run in research/results/adapt, and a table.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.cli.console import console, ending_in_one_line, say, table
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import SPLITS, Sample
from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import RetrievalResult, paired_bootstrap
from slimreid.evaluation.query_gallery import select_part, side_rows
from slimreid.evaluation.reports.feature_metrics import Search, feature_metrics, prepare_rows
from slimreid.evaluation.reports.formatting import points, signed_points
from slimreid.evaluation.reports.writing import dump
from slimreid.files import write_text
from slimreid.inference.adaptation import Adaptation, shrunk_means
from slimreid.inference.features.data import ModelData, camera_numbers, eval_config, open_data
from slimreid.inference.features.extract import Extraction, Features, extract_features
from slimreid.inference.load import load_trained
from slimreid.inference.similarity import feature_kinds
from slimreid.inference.trained_model import TrainedModel
from slimreid.runs.starts import git_commit

OUT = Path(__file__).parent / "results" / "adapt"
RATE = 0.01
METHODS = ("none", "global", "camera", "shrunk", "bnneck")
Ints = NDArray[np.int64]
Means = dict[str, NDArray[np.float32]]


def halves(samples: Sequence[Sample], seed: int) -> tuple[set[str], set[str]]:
    """Identities to adapt with and to search for, drawn by chance."""
    names = sorted({sample.identity for sample in samples})
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    if len(names) < 4:
        raise DataError(f"{len(names)} identities are too few to cut in two")
    return {names[i] for i in order[::2]}, {names[i] for i in order[1::2]}


def fit_rows(samples: Sequence[Sample], identities: set[str], images: int, seed: int) -> Ints:
    """Up to `images` rows of each camera that show some identities, each sample once."""
    by_camera: dict[str, list[int]] = defaultdict(list)
    seen = set()
    for row, sample in enumerate(samples):
        key = tuple(image.path for image in sample.images.values())
        if sample.identity in identities and key not in seen:
            seen.add(key)
            by_camera[sample.camera].append(row)
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(rows)[:images] for _, rows in sorted(by_camera.items())]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def plain_means(blocks: NDArray[np.float32], holds: NDArray[np.bool_], camera: Ints, K: int) -> Any:
    """Means (K + 1, S, C) as they are counted, that of the site where a camera has no such block."""
    found = shrunk_means(blocks, holds, np.full_like(camera, -1), K)
    for s in range(blocks.shape[1]):
        for c in range(K):
            rows = holds[:, s] & (camera == c)
            if rows.any():
                found[c, s] = blocks[rows, s].mean(axis=0)
    return found


def site_means(loaded: TrainedModel, features: Features, rows: Ints, camera: Ints, K: int, how: str) -> Means:
    """The means of a method, per branch, from some rows; camera (n,) numbers those of the site."""
    at = features.position[rows]
    count = {"global": shrunk_means, "camera": plain_means, "shrunk": shrunk_means}[how]
    own = np.full_like(camera, -1) if how == "global" else camera
    return {
        kind: count(
            values[at].reshape(len(at), *loaded.block_shape(kind)),
            loaded.holds(kind, features.present[at]),
            own,
            K,
        )
        for kind, values in features.branches.items()
    }


def adapted_features(
    loaded: TrainedModel, features: Features, data: ModelData, cameras: Sequence[str], means: Means
) -> Features:
    """Features of all rows without the means of their cameras."""
    nothing = np.zeros(0, np.int64)
    model = replace(loaded, adaptation=Adaptation(tuple(cameras), means, nothing, nothing, data.name))
    numbers = camera_numbers(model, data).camera
    camera = np.zeros(len(features.present), np.int64)
    for row in features.rows.tolist():
        camera[features.position[row]] = numbers[data.manifest.samples[row].camera]
    return replace(features, branches=model.adapted(features.branches, features.present, camera))


def with_new_statistics(loaded: TrainedModel, data: ModelData, rows: Ints) -> TrainedModel:
    """The model with mean and variance of its BNNecks counted on some rows, all in one average."""
    model = deepcopy(loaded.model).eval()
    necks = [head.neck for head in model.heads.values()]
    for neck in necks:
        neck.reset_running_stats()
        neck.momentum = None  # a plain average over the batches
        neck.train()
    samples = data.manifest.with_samples([data.manifest.samples[row] for row in rows.tolist()])
    config = eval_config(loaded, data, batch=64, workers=0)
    loader = eval_loader(config, SPLITS, samples, label_encoder=camera_numbers(loaded, data, "other"))
    with torch.no_grad():
        for batch in loader:
            if len(batch) > 1:
                model(batch.to(loaded.device))
    for neck in necks:
        neck.eval()
    return replace(loaded, model=model)


def measure(
    loaded: TrainedModel, features: Features, data: ModelData, identities: set[str], threshold: float
) -> tuple[RetrievalResult, dict[str, float]]:
    """Retrieval of some identities among each other, and their false match rate at a threshold."""
    samples, kind = data.manifest.samples, feature_kinds(loaded)[-1]
    chosen = [i for i in features.rows.tolist() if samples[i].identity in identities]
    query, gallery = side_rows(samples, "test", chosen)
    similarity = loaded.similarity(kind)
    search = Search(samples, query, gallery, data.manifest.protocol)
    scores = feature_metrics(features, kind, search, similarity)
    first, second = (prepare_rows(features, kind, similarity, rows) for rows in (query, gallery))
    who = [np.array([samples[i].identity for i in rows.tolist()]) for rows in (query, gallery)]
    false = similarity.scores(first, second)[who[0][:, None] != who[1]]
    return scores.result, {
        "map": scores.result.map,
        "low": scores.interval.low,
        "high": scores.interval.high,
        "rank1": scores.result.rank(1),
        "false_match_rate": float((false >= threshold).mean()) if threshold == threshold else float("nan"),
        "threshold_here": float(np.quantile(false, 1 - RATE)),
    }


def measure_site(
    loaded: TrainedModel, path: Path, images: Sequence[int], threshold: float, seed: int
) -> dict[str, Any]:
    """All methods on one site, for each number of images per camera."""
    data, _ = select_part(open_data(loaded, path), "test")
    samples = data.manifest.samples
    fitted, searched = halves(samples, seed)
    options = Extraction(cameras="other", workers=0)
    (plain,) = extract_features(loaded, data, options=options).values()
    cameras = sorted({sample.camera for sample in samples})
    before, figures = measure(loaded, plain, data, searched, threshold)
    found: dict[str, Any] = {"none": figures}
    for count in images:
        rows = fit_rows(samples, fitted, count, seed)
        camera = np.array([cameras.index(samples[row].camera) for row in rows.tolist()], np.int64)
        per_count = {}
        for method in METHODS[1:]:
            if method == "bnneck":
                if loaded.config.model.neck_feature != "after":
                    continue
                other = with_new_statistics(loaded, data, rows)
                (features,) = extract_features(other, data, options=options).values()
            else:
                means = site_means(loaded, plain, rows, camera, len(cameras), method)
                features = adapted_features(loaded, plain, data, cameras, means)
            after, figures = measure(loaded, features, data, searched, threshold)
            gain = paired_bootstrap(before, after)
            per_count[method] = {**figures, "gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
        found[str(count)] = per_count
    return {"name": data.name, "fitted": len(fitted), "searched": len(searched), "methods": found}


def home_threshold(loaded: TrainedModel, home: Path | None) -> float:
    """The score that 1 % of the false pairs of home reach; NaN without a home."""
    if home is None:
        return float("nan")
    data, _ = select_part(open_data(loaded, home), "test")
    (features,) = extract_features(loaded, data, options=Extraction(cameras="other", workers=0)).values()
    everyone = {sample.identity for sample in data.manifest.samples}
    return measure(loaded, features, data, everyone, float("nan"))[1]["threshold_here"]


def print_site(site: Mapping[str, Any]) -> None:
    none = site["methods"]["none"]
    rows = [["none", "", points(none["map"]), "", "", f"{none['false_match_rate']:.1%}"]]
    for count, methods in site["methods"].items():
        if count == "none":
            continue
        for method, each in methods.items():
            interval = f"{signed_points(each['gain_low'])} to {signed_points(each['gain_high'])}"
            rate = f"{each['false_match_rate']:.1%}"
            rows.append([method, count, points(each["map"]), signed_points(each["gain"]), interval, rate])
    columns = ["method", "images per camera", "mAP", "gain", "95 %", "false matches"]
    console.print(table(columns, rows, f"{site['name']}, {site['searched']} identities"))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run or model file")
    parser.add_argument("sites", type=Path, nargs="+", help="manifests with queries and gallery")
    parser.add_argument("--home", type=Path, help="manifest on which the threshold is chosen")
    parser.add_argument("--images", type=int, nargs="+", default=[10, 50, 200], help="per camera")
    parser.add_argument("--name", help="of the result; default: that of the run")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    loaded = load_trained(options.run).unadapted()
    threshold = home_threshold(loaded, options.home)
    sites = []
    for path in options.sites:
        sites.append(measure_site(loaded, path, options.images, threshold, options.seed))
        print_site(sites[-1])
    name = options.name or loaded.path.parent.name
    result = {
        "name": name,
        "weights": loaded.fingerprint,
        "commit": git_commit(),
        "threshold": None if threshold != threshold else threshold,
        "images": options.images,
        "seed": options.seed,
        "sites": sites,
    }
    target = options.out / f"{name}.json"
    write_text(target, dump(result) + "\n")
    say(f"written: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
