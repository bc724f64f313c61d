"""How alike different training identities are, for every pair of subsets of the modalities.

A model file keeps these figures, by which `Similarity` brings scores to one scale.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.data.batches import ModalBatch
from slimreid.data.manifest import Sample
from slimreid.devices import Precision
from slimreid.inference.batches import embed_batches
from slimreid.inference.kinds import Subset, check_kind, feature_kinds
from slimreid.inference.similarity import Similarity, fit_impostors
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import BOTH, ORIGINAL, ReIDModel

Floats = NDArray[np.float32]

MOST_IMAGES = 12_288
"""Images that are embedded at most for the statistics, over all subsets."""


def feature_similarity(model: ReIDModel, feature: str, impostors: Floats | None = None) -> Similarity:
    """How features of a kind are compared; raises `ConfigError` for a kind the model does not have."""
    check_kind(feature, tuple(model.sizes))
    single = [(name,) for name in model.modalities]
    blocks: dict[str, Sequence[Subset]] = {ORIGINAL: single}
    if model.second:
        blocks[model.second] = single if model.hdm is None else all_subsets(model.modalities)
    chosen = blocks.values() if feature == BOTH else [blocks[feature]]
    return Similarity(model.modalities, tuple(itertools.chain(*chosen)), impostors)


def choose_samples(samples: Sequence[Sample], modalities: Sequence[str]) -> list[Sample]:
    """Samples for the statistics: in turn one of each identity, as many as are enough."""
    per_sample = len(modalities) * 2 ** (len(modalities) - 1)
    number = max(128, min(2048, MOST_IMAGES // per_sample))
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.identity].append(sample)
    turns = itertools.zip_longest(*groups.values())
    chosen = [sample for turn in turns for sample in turn if sample is not None]
    return chosen[:number]


def training_statistics(
    model: ReIDModel, batches: Iterable[ModalBatch], device: torch.device, precision: Precision = "fp32"
) -> dict[str, Floats]:
    """Statistics of impostors per kind of feature, from batches of training samples.

    Empty where there are no two identities. A sample counts for the subsets that it has wholly.
    """
    subsets = all_subsets(model.modalities)
    kinds = feature_kinds(model)
    features: list[dict[str, list[Floats]]] = [defaultdict(list) for _ in subsets]
    identities: list[list[NDArray[np.int64]]] = [[] for _ in subsets]
    for whole in batches:
        images, who_is = whole.to_images(), whole.identity.cpu().numpy()
        for number, subset in enumerate(subsets):
            rows = np.flatnonzero(images.presence_of(subset).all(axis=1))
            if not len(rows):
                continue
            shown = images.take(rows, subset)
            (found,) = embed_batches(model, [ModalBatch.from_images(shown)], device, precision)
            for kind in kinds:
                features[number][kind].append(found.features[kind].float().cpu().numpy())
            identities[number].append(who_is[rows])
    who = [np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in identities]
    tables = {}
    for kind in kinds:
        empty = np.zeros((0, model.sizes[kind]), np.float32)
        samples = [
            (np.concatenate(parts[kind]) if parts[kind] else empty, names)
            for parts, names in zip(features, who, strict=True)
        ]
        table = fit_impostors(feature_similarity(model, kind), samples)
        if table is not None:
            tables[kind] = table
    return tables
