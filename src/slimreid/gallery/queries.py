"""From images or features to queries: what a sample was seen in, several images of one object as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.arrays import Floats
from slimreid.data.images.pixels import as_pixels
from slimreid.data.manifest import ImageRef
from slimreid.errors import DataError
from slimreid.gallery.decisions.pooling import pool_shots
from slimreid.gallery.decisions.quality import sample_quality
from slimreid.gallery.embedder import Embedder, embed_samples, prepare, seen_in
from slimreid.gallery.store.rows import ModelInfo
from slimreid.inference.embed import as_samples
from slimreid.inference.similarity import Prepared, presence


@dataclass(frozen=True, eq=False)
class Query:
    """Samples to search for."""

    features: Floats
    """(n, D)."""
    prepared: Prepared
    names: tuple[str, ...]
    """Of each: its first file, or its number."""
    modalities: tuple[tuple[str, ...], ...]
    """That each was seen in."""
    images: tuple[Mapping[str, Any], ...] = ()
    """Of each (of a pooled one: of its first image) {modality: image}; empty where there are none."""
    sources: tuple[str, ...] = ()
    """Everything that went into them, by name."""

    def __len__(self) -> int:
        return len(self.names)


def embed_query(
    model: Embedder,
    info: ModelInfo,
    images: Any,
    *,
    names: Sequence[str] | None = None,
    pooled: bool = False,
    camera: str = "",
) -> Query:
    """Embed images of one camera as queries; with `pooled` all of them as one, weighted by quality.

    Raises `DataError` or `ModelError` naming the image that does not fit.
    """
    samples: list[dict[str, Any]] = list(as_samples(images, model.modalities))
    if not samples:
        raise DataError("there is no image to search for")
    features = embed_samples(model, info.feature, samples, [camera] * len(samples))
    called = list(names) if names is not None else [_name(sample, n) for n, sample in enumerate(samples)]
    quality = None
    if pooled and len(samples) > 1:
        pixels = [{name: as_pixels(image) for name, image in sample.items()} for sample in samples]
        quality = [sample_quality(each).value for each in pixels]
    return join_query(info, features, samples, called, quality)


def join_query(
    info: ModelInfo,
    features: Floats,
    samples: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    quality: Sequence[float] | None = None,
) -> Query:
    """Queries of samples {modality: image} with features (n, D); with `quality` (n,) they become one."""
    present = presence(info.modalities, samples)
    called, sources = list(names), tuple(names)
    if quality is not None and len(samples) > 1:
        one = pool_shots(info.similarity, features, present, quality)
        features, present = one.features, one.present
        called, samples = [f"{called[0]} and {len(samples) - 1} more"], samples[:1]
    seen = tuple(seen_in(info.modalities, present))
    return Query(features, prepare(info, features, present), tuple(called), seen, tuple(samples), sources)


def feature_query(info: ModelInfo, features: Floats, present: Any = None) -> Query:
    """Features (n, D) as queries; `present` (n, M), None = seen in all modalities."""
    whole = np.ones((len(features), len(info.modalities)), dtype=np.bool_)
    mask = whole if present is None else np.asarray(present, dtype=np.bool_)
    seen, names = tuple(seen_in(info.modalities, mask)), tuple(map(str, range(len(features))))
    return Query(features, prepare(info, features, mask), names, seen, sources=names)


def _name(sample: Mapping[str, Any], number: int) -> str:
    image = next(iter(sample.values()))
    if isinstance(image, ImageRef):
        return image.path
    return str(image) if isinstance(image, (str, Path)) else f"query {number}"
