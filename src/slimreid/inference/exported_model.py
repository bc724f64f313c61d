"""Exported models, which onnxruntime runs. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

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

T = TypeVar("T")


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
        branches = {kind: size for kind, size in self.sizes.items() if kind != BOTH}
        found = {kind: np.empty((len(batch), size), np.float32) for kind, size in branches.items()}
        for rows, part in self._run(batch, self.engine.features):
            for kind in branches:
                found[kind][rows] = part[kind]
        return found

    @property
    def reduces_tokens(self) -> bool:
        """Whether it drops patches, and its graphs tell which."""
        return bool(self.exported.stages)

    def kept_patches(self, batch: ImageBatch) -> Ints:
        """Numbers (B, M, K) of the patches that the last stage of token reduction kept."""
        last = self.exported.stages[-1]
        parts = [(rows, part[last]) for rows, part in self._run(batch, self.engine.kept_patches)]
        found = np.zeros((len(batch), *parts[0][1].shape[1:]), np.int64)
        for rows, part in parts:
            found[rows] = part
        return found

    def _run(
        self, batch: ImageBatch, graph: Callable[[dict[str, Floats], Ints], T]
    ) -> Iterator[tuple[Ints, T]]:
        """Samples that have the same modalities, and what their graph makes of their images and cameras."""
        cameras = np.where(batch.camera < len(self.cameras), batch.camera, -1)  # −1 = not trained on
        for subset, rows in batch.by_subset():
            yield rows, graph({name: batch.images[name][rows] for name in subset}, cameras[rows])


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
