"""What every model in use can do, whether torch or onnxruntime runs it. Needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slimreid.config import Config
from slimreid.config.backbones import vit_config
from slimreid.config.model import BOTH
from slimreid.data.image_batch import ImageBatch, Ints
from slimreid.data.images.resize import resize
from slimreid.data.images.values import Pixels
from slimreid.inference.embed import Images, embed_images
from slimreid.inference.kinds import Floats
from slimreid.inference.model_card import ModelCard
from slimreid.inference.similarity import Similarity


class LoadedModel(ABC):
    """A trained model, ready for use, with everything its file says."""

    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights it was trained to."""
    path: Path
    """Its file."""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Channels of each kind of feature, `both` last."""

    @property
    @abstractmethod
    def precision(self) -> str:
        """Number format in which features are computed."""

    @property
    @abstractmethod
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""

    @abstractmethod
    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""

    @abstractmethod
    def features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, as the model gives them, not normalised."""

    @abstractmethod
    def kept_patches(self, batch: ImageBatch) -> Ints:
        """Numbers (B, M, K) of the patches that the last stage of token reduction kept, row by row from 0.

        Those of a modality that a sample lacks mean nothing. Only for a model that `reduces_tokens`.
        """

    @property
    def reduces_tokens(self) -> bool:
        """Whether it drops patches."""
        return self.config.model.reduction != "none"

    @property
    def grid(self) -> tuple[int, int]:
        """Patches (down, across) of an image."""
        options = self.config.model
        vit = replace(vit_config(options.backbone), stride=options.stride)
        return vit.grid(self.config.transforms.size)

    def resize(self, image: Pixels, size: tuple[int, int], mode: str) -> Pixels:
        """Resize (H, W, 3) uint8 to (3, *size) uint8; all models give the same bytes, some faster."""
        return resize(image, size, mode)

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

    @property
    def second(self) -> str | None:
        """Name of the feature of the second branch: `slimmed`, `fused`, or None without one."""
        return self.config.model.second

    def embed(
        self,
        images: Images,
        *,
        feature: str = BOTH,
        cameras: Sequence[str | None] | None = None,
        batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Floats:
        """L2-normalised embeddings (B, D), float32 in numpy, of B samples.

        Args:
            images: {modality: one image or a list of B}, with None for what a sample lacks; a list of B
                dicts {modality: image}; or, for a model of one modality, an image or a list of them. An image
                is a path, PIL image, array or tensor (see `slimreid.data.images.pixels`).
            feature: Kind of feature.
            cameras: B names, if the model knows cameras.
            batch: Samples that are read and embedded at a time; default: as in training.
            show_progress: Default: in a terminal, where there are several batches.

        Raises:
            DataError, ModelError: Naming the item that is wrong.
            ConfigError: For a kind of feature that the model does not have.
        """
        return embed_images(
            self, images, feature=feature, cameras=cameras, batch=batch, show_progress=show_progress
        )
