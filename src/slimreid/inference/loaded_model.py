"""What every model in use can do, whether torch or onnxruntime runs it. Needs no torch."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from slimreid.arrays import Bools, Floats, Ints, Pixels
from slimreid.config import Config
from slimreid.config.backbones import vit_config
from slimreid.config.model import BOTH
from slimreid.data.images.resize import resize
from slimreid.data.sample_reader import ImageBatch
from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDWarning
from slimreid.inference.adaptation import Adaptation, subtract_means, tell_unknown
from slimreid.inference.embed import Images, as_samples, make_batch
from slimreid.inference.model_card import ModelCard
from slimreid.inference.similarity import (
    Similarity,
    check_finite,
    check_kind,
    join_branches,
    memory_explained,
)
from slimreid.progress import progress


class LoadedModel(ABC):
    """A trained model, ready for use, with everything its file says."""

    card: ModelCard
    fingerprint: str
    """SHA-256 of the weights it was trained to."""
    path: Path
    """The file of its weights."""
    adaptation: Adaptation | None
    """What it knows of the cameras of a site, if it was adapted to one (`slimreid adapt`)."""

    def __repr__(self) -> str:
        """One line, without the names of all its identities."""
        height, width = self.config.transforms.size
        return (
            f"{type(self).__name__}({str(self.path)!r}, {'+'.join(self.modalities)}, {height}×{width}, "
            f"{[*self.sizes.values()][-1]} channels, {self.precision})"
        )

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
        """SHA-256 over all that decides features: only features that agree in it are compared."""

    @abstractmethod
    def similarity(self, feature: str = BOTH) -> Similarity:
        """How features of a kind are compared; raises `ConfigError` for one the model does not have."""

    @abstractmethod
    def unadapted(self) -> LoadedModel:
        """The same model without an adaptation."""

    @abstractmethod
    def plain_features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, as the model gives them, not normalised, not adapted."""

    def features(self, batch: ImageBatch) -> dict[str, Floats]:
        """Features (B, D) of a batch per branch, adapted to the site if the model is; not normalised.

        The cameras of the batch are numbered as by `camera_number`.
        """
        present = batch.presence_of(self.modalities)
        return self.adapted(self.plain_features(batch), present, batch.camera)

    def adapted(self, features: Mapping[str, Floats], present: Bools, camera: Ints) -> dict[str, Floats]:
        """Features (B, D) per branch without the means of their cameras, if the model has any.

        `present` (B, M): what each sample was seen in; `camera` (B,), numbered as by `camera_number`.
        """
        found = dict(features)
        if self.adaptation is None:
            return found
        K = len(self.adaptation.cameras)
        site = camera - len(self.cameras)
        row = np.where((site >= 0) & (site < K), site, K)
        options = self.config.model
        unit = options.missing == "skip"
        for kind, values in found.items():
            # Blocks of several modalities have values too where one of these lacks: those are not compared.
            fills = unit and all(len(block) == 1 for block in self.similarity(kind).blocks)
            found[kind] = subtract_means(
                values.reshape(len(values), *self.block_shape(kind)),
                self.holds(kind, present),
                self.adaptation.means[kind][row],
                unit=unit,
                fill=options.missing_fill_scale if fills else None,
            ).reshape(values.shape)
        return found

    def holds(self, kind: str, present: Bools) -> Bools:
        """(B, S): which blocks of a kind of feature samples have that were seen in `present` (B, M)."""
        similarity = self.similarity(kind)
        found: Bools = similarity.holds[similarity.subset_numbers(present, len(present))]
        return found

    def check_adaptation(self) -> None:
        """Raise `ModelError` unless the adaptation fits the features of the model."""
        if self.adaptation is None:
            return
        K = len(self.adaptation.cameras)
        for kind in self.sizes:
            table = self.adaptation.means.get(kind)
            shape = (K + 1, *self.block_shape(kind))
            if kind != BOTH and (table is None or table.shape != shape or not np.isfinite(table).all()):
                raise ModelError(
                    f"{self.path}: the means of '{kind}' are not {shape} finite numbers; adapt it again"
                )

    def block_shape(self, kind: str) -> tuple[int, int]:
        """Blocks of a kind of feature, and channels of each."""
        blocks = len(self.similarity(kind).blocks)
        return blocks, self.sizes[kind] // blocks

    def camera_number(self, name: str | None) -> int:
        """The number of a camera: those of training come first; where the model is adapted, only the cameras
        of the site are known, and come after those of training. −1 for any other, and for None.
        """
        if name is None:
            return -1
        if self.adaptation is None:
            return self.cameras.index(name) if name in self.cameras else -1
        site = self.adaptation.cameras
        return len(self.cameras) + site.index(name) if name in site else -1

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
            cameras: B names, None where one is not known. They matter to a model with camera embeddings or
                one that was adapted to a site.
            batch: Samples that are read and embedded at a time; default: as in training.
            show_progress: Default: in a terminal, where there are several batches.

        Raises:
            DataError, ModelError: Naming the item that is wrong.
            ConfigError: For a kind of feature that the model does not have.
        """
        samples = as_samples(images, self.modalities)
        check_kind(feature, tuple(self.sizes))
        if cameras is not None and len(cameras) != len(samples):
            raise DataError(f"{len(cameras)} cameras for {len(samples)} samples; give one for each")
        named = cameras or [None] * len(samples)
        camera = [self.camera_number(name) for name in named]
        if self.adaptation is not None:
            tell_unknown(self.adaptation, {name for name, at in zip(named, camera, strict=True) if at < 0})
        size = self.config.batch.test if batch is None else batch
        if size < 1:
            raise ConfigError(f"batch must be at least 1, not {size}")
        starts = range(0, len(samples), size)
        show = show_progress if len(starts) > 1 or show_progress else False
        parts = [np.zeros((0, self.sizes[feature]), np.float32)]
        with warnings.catch_warnings(), memory_explained(size):
            warnings.simplefilter("ignore", SlimReIDWarning)  # an unknown camera is what the caller asked for
            for at in progress(starts, "embedding images", show=show):
                seen = make_batch(self, samples[at : at + size], camera[at : at + size], at)
                features = join_branches(self.features(seen), feature)
                check_finite(features, [f"sample {number}" for number in seen.index.tolist()])
                parts.append(features)
        return np.concatenate(parts)
