"""Trained models, ready for use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimreid.config import Config
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.inference.embed import Images, embed
from slimreid.inference.model_card import ModelCard, card_from_header, feature_fingerprint
from slimreid.inference.model_file import find_model, read_model
from slimreid.inference.similarity import Similarity
from slimreid.inference.training_statistics import feature_similarity
from slimreid.models.build import build_model
from slimreid.models.reid_model import BOTH, ReIDModel


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready for use, with everything its file says."""

    model: ReIDModel
    """In eval mode."""
    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights: two models with the same one give the same embeddings."""
    path: Path
    impostors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Per kind of feature, how alike different training identities are; see `Similarity`."""

    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""
        return feature_similarity(self.model, feature, self.impostors.get(feature))

    @property
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
        return feature_fingerprint(self.card, self.fingerprint, self.config.train.precision)

    @property
    def config(self) -> Config:
        """Options of the run it comes from."""
        return self.card.config

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities of the model, in order."""
        return self.card.modalities

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras it knows."""
        return self.card.cameras

    @property
    def identities(self) -> tuple[str, ...]:
        """Names of the identities it was trained on."""
        return self.card.identities

    def embed(
        self,
        images: Images,
        *,
        feature: str = "both",
        cameras: Sequence[str | None] | None = None,
        batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Tensor:
        """L2-normalised embeddings (B, D), float32 on CPU, of paths, PIL images, arrays or tensors.

        `images`: {modality: one or a list of B, None for gaps}, a list of dicts {modality: image}, or for a
        model of one modality an image or a list. See `slimreid.inference.embed.embed`.
        """
        return embed(
            self.model,
            self.card,
            images,
            feature=feature,
            cameras=cameras,
            batch=batch,
            show_progress=show_progress,
        )


def load(path: Path | str, device: torch.device | str = "cpu") -> LoadedModel:
    """Load a trained model from its file, or from the folder of a run or checkpoint, in eval mode.

    Raises `ModelError` naming the file and what is wrong with it.
    """
    path = find_model(path)
    return assemble(path, *read_model(path), device)


def assemble(
    path: Path, state: Mapping[str, Tensor], header: Mapping[str, Any], device: torch.device | str = "cpu"
) -> LoadedModel:
    """The model whose file at `path` holds these weights and this header, in eval mode."""
    card = card_from_header(path, header)
    model = build_from_card(card)
    load_state(model, state, path)
    tables = header.get("impostors", {})
    for kind, table in tables.items():
        try:
            feature_similarity(model, kind, table)
        except (ConfigError, DataError) as error:
            raise ModelError(f"{path}: its statistics of impostors are wrong: {error}") from None
    return LoadedModel(model.to(device).eval(), card, header["fingerprint"], path, tables)


def build_from_card(card: ModelCard) -> ReIDModel:
    """The model a card describes, with random weights."""
    config = card.config
    return build_model(
        config.model,
        config.transforms.size,
        card.modalities,
        len(card.identities),
        len(card.cameras),
        load_weights=False,
    )


def load_state(model: ReIDModel, state: Mapping[str, Tensor], where: Path | str) -> None:
    """Put weights into a model to the last key; raises `ModelError` naming the keys that do not fit."""
    own = model.state_dict()
    faults = [f"missing '{name}'" for name in own if name not in state]
    faults += [f"no place for '{name}'" for name in state if name not in own]
    faults += [
        f"'{name}' is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if faults:
        more = f"\n  and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise ModelError(f"{where}: the weights do not fit\n  " + "\n  ".join(faults[:10]) + more)
    model.load_state_dict(state)
