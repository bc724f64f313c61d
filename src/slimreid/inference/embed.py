"""From images in a program's hands to embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from slimreid.data.augment.transforms import TestTransform, resize
from slimreid.data.batches import ModalBatch
from slimreid.data.dataset import check_aligned
from slimreid.data.images.pixels import ImageLike, as_pixels
from slimreid.data.manifest import ImageRef
from slimreid.devices import usable_precision
from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDWarning
from slimreid.inference.batches import check_finite, check_kind, embed_batches, memory_explained
from slimreid.inference.model_file import ModelCard
from slimreid.modalities import find_modality
from slimreid.models.reid_model import BOTH, ReIDModel
from slimreid.progress import progress

Column: TypeAlias = "ImageLike | Sequence[ImageLike | None] | None"
Images: TypeAlias = "Column | Mapping[str, Column] | Sequence[Mapping[str, ImageLike | None]]"


def embed(
    model: ReIDModel,
    card: ModelCard,
    images: Images,
    *,
    feature: str = BOTH,
    cameras: Sequence[str | None] | None = None,
    batch: int | None = None,
    show_progress: bool | None = None,
) -> Tensor:
    """L2-normalised embeddings (B, D), float32 on CPU, of B samples.

    `images`: {modality: one image or a list of B}, with None for what a sample lacks; a list of B dicts
    {modality: image}; or, for a model of one modality, an image or a list of them. An image is a path, PIL
    image, array or tensor (see `slimreid.data.images.pixels`). `cameras`: B names, if the model knows
    cameras. Reads and embeds `batch` samples at a time. Raises `DataError` or `ModelError` naming the item.
    """
    samples = as_samples(images, card.modalities)
    check_kind(feature, tuple(model.sizes))
    if cameras is not None and len(cameras) != len(samples):
        raise DataError(f"{len(cameras)} cameras for {len(samples)} samples; give one for each")
    number = {name: i for i, name in enumerate(card.cameras)}
    camera = [number.get(name, -1) if name is not None else -1 for name in cameras or [None] * len(samples)]
    size = card.config.batch.test if batch is None else batch
    if size < 1:
        raise ConfigError(f"batch must be at least 1, not {size}")
    device = next(model.parameters()).device
    precision = usable_precision(card.config.train.precision, device)
    starts = range(0, len(samples), size)
    show = show_progress if len(starts) > 1 or show_progress else False
    bar = progress(starts, "embedding images", show=show)
    batches = (_make_batch(card, samples[at : at + size], camera[at : at + size], at) for at in bar)
    parts = [torch.zeros(0, model.sizes[feature])]
    with warnings.catch_warnings(), memory_explained(size):
        warnings.simplefilter("ignore", SlimReIDWarning)  # an unknown camera is what the caller asked for
        for found in embed_batches(model, batches, device, precision):
            features = F.normalize(found.features[feature].float()).cpu()
            check_finite(features, [f"sample {number}" for number in found.batch.index.tolist()])
            parts.append(features)
    return torch.cat(parts)


def as_samples(images: Images, modalities: Sequence[str]) -> list[dict[str, ImageLike]]:
    """Any way to give images as a list of samples {modality: image}, in the model's order of modalities.

    Raises `ModelError` for a modality the model does not know, `DataError` for columns of different lengths
    or a sample without any image.
    """
    if isinstance(images, Mapping):
        columns = {_known(name, modalities): _as_list(column) for name, column in images.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(columns) < len(images) or not columns:
            raise DataError("images must name at least one modality, and each only once")
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{n} of '{name}'" for name, n in lengths.items())
            raise DataError(
                f"every modality needs one entry per sample, but there are {shown}; use None for gaps"
            )
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    else:
        listed = _as_list(images)
        named = [item for item in listed if isinstance(item, Mapping)]
        if len(named) == len(listed):  # also where there are none
            rows = [{_known(n, modalities): x for n, x in item.items()} for item in named]
        elif len(modalities) == 1:
            rows = [{modalities[0]: item} for item in listed]
        else:
            raise ModelError(
                f"the model sees {', '.join(modalities)}; say which these are: {{'{modalities[0]}': images}}"
            )
    samples = [{n: row[n] for n in modalities if row.get(n) is not None} for row in rows]
    for i, sample in enumerate(samples):
        if not sample:
            raise DataError(f"sample {i} has no image of any modality; leave it out")
    return samples


def _as_list(column: Any) -> list[Any]:
    """The entries of a column: a single image is one, a stack (B, ...) of arrays or tensors is B."""
    if isinstance(column, (np.ndarray, Tensor)):
        return list(column) if column.ndim == 4 else [column]
    if isinstance(column, (list, tuple)):
        return list(column)
    return [column]


def _known(name: str, modalities: Sequence[str]) -> str:
    found = name if name in modalities else find_modality(str(name))
    if found is None or found not in modalities:
        raise ModelError(f"images of '{name}'; the model knows {', '.join(modalities)}")
    return found


def _make_batch(
    card: ModelCard, samples: Sequence[Mapping[str, ImageLike]], cameras: Sequence[int], start: int
) -> ModalBatch:
    """Read, resize and normalise some samples as a dataset does; `start` is the number of the first."""
    config = card.config
    size = config.transforms.size
    transform = TestTransform(config.transforms)
    at_least = size if config.data.scaled_decode else None
    B, names = len(samples), card.modalities
    images = {name: torch.zeros(B, 3, *size) for name in names}
    present = torch.zeros(B, len(names), dtype=torch.bool)
    for b, sample in enumerate(samples):
        labels = {name: _label(image, name, start + b) for name, image in sample.items()}
        pixels = {}
        for name, image in sample.items():
            window = (config.data.windows or {}).get(name)
            try:
                pixels[name] = as_pixels(image, window, at_least)
            except DataError as error:
                raise DataError(f"sample {start + b}, '{name}': {error}") from None
        check_aligned(pixels, labels)
        resized = {name: resize(p, size, transform.mode) for name, p in pixels.items()}
        for name, tensor in transform(resized).items():
            images[name][b] = tensor
            present[b, names.index(name)] = True
    number = torch.arange(start, start + B)
    return ModalBatch(
        images=images,
        present=present,
        identity=number,
        camera=torch.tensor(cameras, dtype=torch.int64),
        scene=torch.full((B,), -1),
        index=number,
        paths=({},) * B,
    )


def _label(image: ImageLike, name: str, number: int) -> str:
    if isinstance(image, ImageRef):
        return image.path
    return f"sample {number}" if isinstance(image, (Image.Image, np.ndarray, Tensor)) else f"{image}"
