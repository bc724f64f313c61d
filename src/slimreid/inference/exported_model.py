"""Exported models, which onnxruntime runs. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slimreid.arrays import Floats, Ints
from slimreid.config.model import BOTH
from slimreid.data.sample_reader import ImageBatch
from slimreid.errors import ConfigError
from slimreid.inference.adaptation import Adaptation
from slimreid.inference.exported_card import ExportedCard
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import ModelCard
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.inference.similarity import Similarity, check_kind


@dataclass(frozen=True, repr=False)
class ExportedModel(LoadedModel):
    """A model that was exported to ONNX."""

    engine: OnnxEngine
    path: Path
    """Its file `model.json`."""
    exported: ExportedCard
    """The content of that file."""
    card: ModelCard
    """What the file of the model said that was exported."""
    fingerprint: str
    """SHA-256 of the weights that were exported."""
    adaptation: Adaptation | None

    @property
    def sizes(self) -> Mapping[str, int]:
        """Channels of each kind of feature, `both` last."""
        return self.exported.sizes

    @property
    def precision(self) -> str:
        """Number format in which features are computed, and by what."""
        return " ".join(["onnx", self.exported.precision, *self.exported.float_layers])

    @property
    def weight_bytes(self) -> int:
        """Bytes of the file of weights, which the graphs share."""
        return self.engine.weight_bytes

    @property
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
        return self.exported.feature_fingerprint

    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""
        check_kind(feature, tuple(self.sizes))
        return self.exported.similarities[feature]

    def unadapted(self) -> ExportedModel:
        """The same model without an adaptation."""
        return replace(self, exported=replace(self.exported, adaptation=None), adaptation=None)

    def plain_features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, as the model gives them, not normalised, not adapted.

        Samples that have the same modalities are computed together, by the graph of these modalities.
        """
        cameras = self._known_cameras(batch)
        branches = [kind for kind in self.sizes if kind != BOTH]
        found = {kind: np.empty((len(batch), self.sizes[kind]), np.float32) for kind in branches}
        for subset, rows in batch.by_subset():
            images = {name: batch.images[name][rows] for name in subset}
            part = self.engine.features(images, cameras[rows])
            for kind in branches:
                found[kind][rows] = part[kind]
        return found

    @property
    def reduces_tokens(self) -> bool:
        """Whether it drops patches, and its graphs tell which."""
        return bool(self.exported.stages)

    def kept_patches(self, batch: ImageBatch) -> Ints:
        """Numbers (B, M, K) of the patches that the last stage of token reduction kept."""
        cameras, last = self._known_cameras(batch), self.exported.stages[-1]
        parts = []
        for subset, rows in batch.by_subset():
            images = {name: batch.images[name][rows] for name in subset}
            parts.append((rows, self.engine.kept_patches(images, cameras[rows])[last]))
        found = np.zeros((len(batch), *parts[0][1].shape[1:]), np.int64)
        for rows, part in parts:
            found[rows] = part
        return found

    def _known_cameras(self, batch: ImageBatch) -> Ints:
        """Cameras (B,) as a graph takes them: −1 for those it was not trained on."""
        return np.where(batch.camera < len(self.cameras), batch.camera, -1)


def load_exported(
    folder: Path | str, device: str | None = "cpu", threads: int | None = None
) -> ExportedModel:
    """Load an exported model from its folder; raises `ModelError`, and `ConfigError` for another device."""
    if device not in (None, "cpu"):
        raise ConfigError(f"device '{device}': an exported model runs on the CPU; leave it out")
    engine = OnnxEngine(folder, threads)
    card = engine.card
    loaded = ExportedModel(engine, engine.path, card, card.model, card.fingerprint, card.adaptation)
    loaded.check_adaptation()
    return loaded
