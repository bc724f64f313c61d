"""What a model file or an exported model says about its weights. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.config.files import config_from_dict
from slimreid.errors import ConfigError, ModelError

CHOSEN_ON_TEST = "the checkpoint was chosen on the test set, so its figures are too good"
"""What every result of such a model must say."""


@dataclass(frozen=True)
class ModelCard:
    """What a model file says about its weights."""

    config: Config
    """All options of the run it comes from."""
    modalities: tuple[str, ...]
    """Modalities of the model, in order."""
    identities: tuple[str, ...]
    """Names of the training identities, in the order of the classes."""
    cameras: tuple[str, ...]
    """Names of the training cameras, in the order of the camera embedding."""
    epoch: int
    """Epochs of training behind these weights."""
    select_on: str
    """How the checkpoint was chosen: on `val`, on `test`, or `last` = not chosen."""
    protocol: str = "camera"
    """Evaluation protocol of the data."""
    origin: str = ""
    """What the pixels were, if the manifest says so, e.g. 'real rgb, simulated nir/tir'."""


def feature_fingerprint(card: ModelCard, weights: str, precision: str) -> str:
    """SHA-256 over all that decides the features of an image: weights, precision and preprocessing.

    Features of two models may be compared if and only if they agree in this.
    """
    data, transforms = card.config.data, card.config.transforms
    content = [
        weights,
        precision,
        card.modalities,
        [transforms.size, transforms.mean, transforms.std, transforms.test_resize],
        [data.windows, data.scaled_decode],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def card_from_header(path: Path, header: Mapping[str, Any]) -> ModelCard:
    """The card in the header of a model file; raises `ModelError` for options this version does not know."""
    values = {name: header[name] for name in ModelCard.__dataclass_fields__ if name in header}
    for name in ("modalities", "identities", "cameras"):
        values[name] = tuple(values[name])
    try:
        values["config"] = config_from_dict(header["config"])
    except ConfigError as error:
        raise ModelError(f"{path}: its options do not fit this SlimReID: {error}") from None
    return ModelCard(**values)
