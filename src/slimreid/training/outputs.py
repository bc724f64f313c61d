"""What a run hands over: the card of its model, and the model to share."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from slimreid.arrays import Floats, Ints
from slimreid.config import Config
from slimreid.data.batches import ModalBatch
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import LabelEncoder, Manifest, Sample
from slimreid.devices import Precision
from slimreid.inference.model_card import ModelCard, card_from_header
from slimreid.inference.similarity import feature_kinds, fit_impostors
from slimreid.inference.trained_model import embed_batches, feature_similarity, read_model, write_model
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel
from slimreid.training.learner import Learner

MOST_IMAGES = 12_288
"""Images that are embedded at most for the statistics, over all subsets."""


def model_card(config: Config, manifest: Manifest, label_encoder: LabelEncoder, epoch: int) -> ModelCard:
    """What a model file says about the weights after `epoch` epochs."""
    return ModelCard(
        config=config,
        modalities=manifest.modalities,
        identities=label_encoder.trained_identities,
        cameras=label_encoder.trained_cameras,
        epoch=epoch,
        select_on=config.train.select_on,
        protocol=manifest.protocol,
        origin=manifest.origin,
    )


def share_model(source: Path, target: Path, learner: Learner, manifest: Manifest) -> None:
    """Write the model of a checkpoint with how alike different training identities are to it.

    The weights of `source` must be those that the learner's model has now.
    """
    config = replace(learner.config, data=replace(learner.config.data, workers=0))
    samples = manifest.with_samples(choose_samples(manifest.select("train"), manifest.modalities))
    loader = eval_loader(config, ("train",), samples, label_encoder=learner.loader.dataset.label_encoder)
    device, precision = learner.processes.device, config.train.precision
    statistics = training_statistics(learner.model, loader, device, precision)
    weights, header = read_model(source)
    card = card_from_header(source, header)
    # What was chosen on val at the end goes with the model, so that everything that reads it applies it.
    chosen = replace(card.config.model, second_scale=learner.model.options.second_scale)
    card = replace(card, config=replace(card.config, model=chosen))
    write_model(target, weights, card, statistics)


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
    identities: list[list[Ints]] = [[] for _ in subsets]
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
