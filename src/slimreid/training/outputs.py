"""What a run hands over: the card of its model, the model to share, and the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.data.label_encoder import LabelEncoder
from slimreid.data.loader import eval_loader
from slimreid.data.manifest import Manifest
from slimreid.inference.model_card import CHOSEN_ON_TEST, ModelCard, card_from_header
from slimreid.inference.model_file import read_model, write_model
from slimreid.inference.training_statistics import choose_samples, training_statistics
from slimreid.training.checkpoint.state import Best
from slimreid.training.learner import Learner


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    selected_epoch: int
    epochs: int
    best: Best | None
    fingerprint: str
    """Of the selected weights."""
    test: dict[str, Any] | None
    """Figures of the selected weights on the test set; None where the data has none."""
    sources: dict[str, str]
    """Fingerprints of the models that the run began from or follows."""


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


def result_values(config: Config, origin: str, outcome: Outcome) -> dict[str, Any]:
    """The content of a run's result.json."""
    train = config.train
    values: dict[str, Any] = {
        "select_on": train.select_on,
        "selected_epoch": outcome.selected_epoch,
        "epochs": outcome.epochs,
        "features": train.eval_features,
        "origin": origin,
        "seed": config.seed,
        "fingerprint": outcome.fingerprint,
        "best": asdict(outcome.best) if outcome.best else None,
        "test": outcome.test,
    }
    if outcome.sources:
        values["sources"] = outcome.sources
    if train.select_on == "test":
        values["note"] = CHOSEN_ON_TEST
    return values


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
