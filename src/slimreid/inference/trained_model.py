"""Trained models that torch runs, from the files that training writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.config.model import BOTH, ORIGINAL
from slimreid.data.augment.transforms import fast_resize
from slimreid.data.batches import ModalBatch
from slimreid.data.image_batch import ImageBatch, Ints
from slimreid.data.images.values import Pixels
from slimreid.devices import Precision, choose_device, usable_precision
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.inference.adaptation import Adaptation
from slimreid.inference.batches import embed_batches
from slimreid.inference.kinds import Floats
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import ModelCard, card_from_header, feature_fingerprint
from slimreid.inference.model_file import read_model, write_model
from slimreid.inference.shipped import find_model
from slimreid.inference.similarity import Similarity
from slimreid.inference.training_statistics import feature_similarity
from slimreid.models.build import build_model
from slimreid.models.reid_model import ReIDModel


@dataclass(frozen=True)
class TrainedModel(LoadedModel):
    """A trained model that torch runs."""

    model: ReIDModel
    """In eval mode."""
    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights: two models with the same one give the same embeddings."""
    path: Path
    impostors: Mapping[str, Floats] = field(default_factory=dict)
    """Per kind of feature, how alike different training identities are; see `Similarity`."""
    adaptation: Adaptation | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        """Channels of each kind of feature, `both` last."""
        return self.model.sizes

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def precision(self) -> Precision:
        """Number format in which features are computed: that of training where the device has it."""
        return usable_precision(self.config.train.precision, self.device)

    @property
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
        precision = self.config.train.precision
        return feature_fingerprint(self.card, self.fingerprint, precision, self.adaptation)

    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""
        # Without a second branch both together are the first one again.
        of = ORIGINAL if feature == BOTH and self.second is None else feature
        return feature_similarity(self.model, feature, self.impostors.get(of))

    def resize(self, image: Pixels, size: tuple[int, int], mode: str) -> Pixels:
        """Resize (H, W, 3) uint8 to (3, *size) uint8, by torch."""
        return fast_resize(image, size, mode)

    def unadapted(self) -> TrainedModel:
        """The same model without an adaptation."""
        return replace(self, adaptation=None)

    def plain_features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, as the model gives them, not normalised."""
        tensors = ModalBatch.from_images(batch)
        (found,) = embed_batches(self.model, [tensors], self.device, self.precision)
        return {n: f.float().cpu().numpy() for n, f in found.features.items() if n != BOTH}

    @torch.no_grad()
    def kept_patches(self, batch: ImageBatch) -> Ints:
        """Numbers (B, M, K) of the patches that the last stage of token reduction kept."""
        output = self.model(ModalBatch.from_images(batch).to(self.device), with_reduced=True)
        kept: Ints = output.reduced.selections[-1].index.cpu().numpy()
        return kept


def load_trained(path: Path | str, device: torch.device | str | None = "cpu") -> TrainedModel:
    """Load a trained model from its file, or from the folder of a run or checkpoint, in eval mode.

    `device` None = a GPU if there is one. Raises `ModelError` naming the file and what is wrong with it,
    `ConfigError` for a device that cannot be used.
    """
    path = find_model(path)
    place = device if isinstance(device, torch.device) else choose_device(device)
    return assemble(path, *read_model(path), place)


def assemble(
    path: Path, state: Mapping[str, Tensor], header: Mapping[str, Any], device: torch.device | str = "cpu"
) -> TrainedModel:
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
    adaptation = header.get("adaptation")
    loaded = TrainedModel(model.to(device).eval(), card, header["fingerprint"], path, tables, adaptation)
    loaded.check_adaptation()
    return loaded


def write_adapted(loaded: TrainedModel, path: Path, adaptation: Adaptation) -> None:
    """Write a model with an adaptation in place of its own."""
    write_model(path, loaded.model.state_dict(), loaded.card, loaded.impostors, adaptation)


def architecture(loaded: LoadedModel) -> ReIDModel:
    """The model as torch has it; that of an exported model has random weights."""
    return loaded.model if isinstance(loaded, TrainedModel) else build_from_card(loaded.card)


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
