"""What a gallery needs of a model: any object with these properties will do, `slimreid.load` gives one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from slimreid.arrays import Bools, Floats
from slimreid.gallery.errors import GalleryError, OtherModelError
from slimreid.gallery.store.rows import ModelInfo
from slimreid.inference.load import shipped_name
from slimreid.inference.similarity import Prepared, Similarity


class Embedder(Protocol):
    """A model that embeds images."""

    @property
    def feature_fingerprint(self) -> str:
        """Only features of models that agree in this are compared."""

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities of the model, in order."""

    def similarity(self, feature: str = ...) -> Similarity:
        """How features of a kind are compared."""

    def embed(
        self,
        images: Any,
        *,
        feature: str = ...,
        cameras: Sequence[str | None] | None = ...,
        batch: int | None = ...,
        show_progress: bool | None = ...,
    ) -> Any:
        """L2-normalised features (B, D) of B samples."""


def describe_model(model: Embedder, feature: str) -> ModelInfo:
    """What a gallery keeps of a model; raises `ConfigError` for a kind of feature it does not have."""
    similarity = model.similarity(feature)
    # The size is known only from a feature: an image of one grey is enough.
    grey = np.full((32, 32, 3), 128, dtype=np.uint8)
    dimension = embed_samples(model, feature, [{model.modalities[0]: grey}]).shape[1]
    path = getattr(model, "path", None)  # of a model that `slimreid.load` gave
    source = "" if path is None else shipped_name(path) or str(path)
    return ModelInfo(model.feature_fingerprint, feature, dimension, similarity, source)


def check_model(model: Embedder, wanted: ModelInfo, place: str) -> None:
    """Raise `OtherModelError` unless the features of a model are those of a gallery."""
    if model.feature_fingerprint != wanted.fingerprint:
        raise OtherModelError(
            f"{place}: its features are of another model, precision or preprocessing "
            f"({wanted.fingerprint[:12]}, not {model.feature_fingerprint[:12]}); use that model, or compute "
            f"all features anew with 'slimreid gallery reembed'"
        )


def embed_samples(
    model: Embedder,
    feature: str,
    samples: Sequence[dict[str, Any]],
    cameras: Sequence[str] | None = None,
    batch: int | None = None,
) -> Floats:
    """Features (B, D) of samples {modality: image}; raises `GalleryError` for a model that gives others.

    `cameras` (B,), '' where one is not known, matter to a model that was adapted to a site; None where the
    features do not matter.
    """
    options: dict[str, Any] = {}
    adaptation = getattr(model, "adaptation", None)
    # To any other model they would be cameras of training, and only their names are the same.
    if adaptation is not None:
        named = adaptation.cameras[:1] * len(samples) if cameras is None else cameras
        options["cameras"] = [name or None for name in named or [""] * len(samples)]
    found = np.asarray(
        model.embed(list(samples), feature=feature, batch=batch, show_progress=False, **options)
    )
    if found.ndim != 2 or len(found) != len(samples):
        raise GalleryError(f"the model gave features {found.shape} for {len(samples)} samples")
    return found.astype(np.float32, copy=False)


def seen_in(modalities: Sequence[str], present: Bools) -> list[tuple[str, ...]]:
    """Which modalities each sample has, from a mask (n, M); the other way round than `presence` gives it."""
    return [tuple(m for m, there in zip(modalities, row, strict=True) if there) for row in present]


def prepare(info: ModelInfo, features: Floats, present: Bools) -> Prepared:
    """Features ready to be compared with those of a gallery; raises `DataError` where they do not fit."""
    if features.ndim != 2 or features.shape[1] != info.dimension:
        raise GalleryError(f"features are {features.shape}, but those of the gallery (…, {info.dimension})")
    return info.similarity.prepare(features, present)
