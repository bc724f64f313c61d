"""How well each source of a score finds the object, without any training for it.

    python research/score_terms.py RUN [--split test] [--limit 128] [--out FILE.json]

For a trained run on data with true masks (the synthetic world): the area under the ROC curve, within each
image, of patches that are at least half object against the others, by each score term of reduction after the
backbone may use; and the share of the best patches (as many as `--keep` says) that shows the object. Means
over images of all modalities; 0.5 is chance for the first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.backbones.tokens import TokenState
from slimreid.cli.console import console, ending_in_one_line, table
from slimreid.data.dataset import ReIDDataset
from slimreid.data.images.masks import object_shares, read_mask
from slimreid.data.manifest import SPLITS
from slimreid.errors import DataError
from slimreid.evaluation.query_gallery import select_part
from slimreid.evaluation.reports.formatting import points
from slimreid.files import write_text
from slimreid.inference.features.data import camera_numbers, eval_config, open_data
from slimreid.inference.load import load_trained
from slimreid.inference.trained_model import TrainedModel
from slimreid.progress import progress
from slimreid.token_reduction.score import contrast, similarities
from slimreid.token_reduction.select import kept_count, stable_top

Floats = NDArray[np.float64]


@torch.no_grad()
def terms_of(loaded: TrainedModel, images: Tensor) -> dict[str, Tensor]:
    """Scores (M, B, N) by term, for images (M, B, 3, H, W) of a model's modalities."""
    model = loaded.model.eval()
    M, B = images.shape[:2]
    depth, prefix = model.backbone.config.depth, model.backbone.config.prefix
    seen: dict[int, Tensor] = {}

    def note(block: int, state: TokenState) -> TokenState:
        if state.attention is not None:
            seen[block] = state.attention[:, prefix:]
        return state

    encoded = model.backbone(images.flatten(0, 1), None, note, range(depth))
    seen[depth] = encoded.state.attention[:, prefix:]
    patches, vectors = encoded.patches.unflatten(0, (M, B)), encoded.global_.unflatten(0, (M, B))
    found: dict[str, list[Tensor]] = defaultdict(list)
    for m in range(M):
        others = [o for o in range(M) if o != m]
        for centred in (False, True):
            guides = torch.stack([vectors[m], *(vectors[o] for o in others)], 1)
            mean = patches[m].mean(1, keepdim=True) if centred else 0.0
            sims = similarities(patches[m] - mean, guides - mean)
            found["self, centred" if centred else "self"].append(sims[:, 0])
            if others:
                found["cross, centred" if centred else "cross"].append(sims[:, 1:].mean(1))
        found["contrast"].append(contrast(patches[m]))
        if others:
            found["cross_contrast"].append(torch.stack([contrast(patches[o]) for o in others]).mean(0))
        if model.after_backbone is not None and model.after_backbone.scorers:
            modules = model.after_backbone.scorers
            scorer = modules[loaded.modalities[m]] if loaded.modalities[m] in modules else modules["shared"]
            found["learned"].append(scorer(patches[m]))
    result = {name: torch.stack(values) for name, values in found.items()}
    for block, attention in seen.items():
        result[f"attention, block {block}"] = attention.unflatten(0, (M, B))
    return result


def area_under_curve(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """Probability that a positive has a higher score than a negative, ties half: two of (N,)."""
    higher = scores[positive][:, None] > scores[~positive][None]
    equal = scores[positive][:, None] == scores[~positive][None]
    return float((higher + 0.5 * equal).mean())


def compare(loaded: TrainedModel, part: str, limit: int, keep: float) -> dict[str, tuple[float, float]]:
    """Per term the mean area under the curve and the share of kept patches on the object."""
    data, _ = select_part(open_data(loaded), part)  # type: ignore[arg-type]
    names = loaded.modalities
    whole = [s for s in data.manifest.samples if set(names) <= set(s.images)]
    rows = np.unique(np.linspace(0, len(whole) - 1, min(limit, len(whole))).round().astype(int))
    chosen = [whole[i] for i in rows]
    masks = [read_mask(data.manifest, sample) for sample in chosen]
    if not chosen or any(mask is None for mask in masks):
        raise DataError(f"{data.path}: there are samples without a mask; use the synthetic world")
    config = eval_config(loaded, data, workers=0)
    dataset = ReIDDataset(
        data.manifest.with_samples(chosen),
        SPLITS,
        config.transforms,
        data=config.data,
        label_encoder=camera_numbers(loaded, data),
    )
    grid = loaded.model.backbone.grid
    figures: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for i in progress(range(len(dataset)), "scoring patches"):
        batch = dataset.collate([dataset[i]])
        shares = object_shares(masks[i], grid)  # type: ignore[arg-type]
        if not 0 < (shares >= 0.5).sum() < len(shares):
            continue
        images = torch.stack([batch.images[name] for name in names])
        for term, values in terms_of(loaded, images).items():
            for row in values[:, 0]:
                best = stable_top(row[None], kept_count(len(row), keep))[0].numpy()
                figures[term].append(
                    (area_under_curve(row.double().numpy(), shares >= 0.5), float(shares[best].mean()))
                )
    return {source: tuple(np.mean(found, axis=0).tolist()) for source, found in figures.items()}


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--limit", type=int, default=128, help="at most so many samples, evenly spread")
    parser.add_argument("--keep", type=float, default=0.5, help="share of patches that is kept")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures, 0 to 1, as JSON")
    options = parser.parse_args(arguments)
    found = compare(load_trained(options.run), options.split, options.limit, options.keep)
    rows = [(source, f"{area:.3f}", points(share)) for source, (area, share) in found.items()]
    console.print(table(["source", "area under ROC", "kept on object (%)"], rows, options.run.name))
    if options.out:
        values = {source: {"auc": area, "on_object": share} for source, (area, share) in found.items()}
        write_text(options.out, json.dumps(values, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
