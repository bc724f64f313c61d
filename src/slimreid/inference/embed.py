"""From images in a program's hands to batches of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image

from slimreid.arrays import Floats
from slimreid.data.images.pixels import ImageLike, as_pixels, is_tensor
from slimreid.data.manifest import ImageRef
from slimreid.data.sample_reader import ImageBatch, check_aligned, join_samples, normalise
from slimreid.errors import DataError, ModelError
from slimreid.modalities import find_modality

if TYPE_CHECKING:
    from slimreid.inference.loaded_model import LoadedModel

Column: TypeAlias = "ImageLike | Sequence[ImageLike | None] | None"
Images: TypeAlias = "Column | Mapping[str, Column] | Sequence[Mapping[str, ImageLike | None]]"


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
    if isinstance(column, np.ndarray) or is_tensor(column):
        return list(column) if column.ndim == 4 else [column]
    if isinstance(column, (list, tuple)):
        return list(column)
    return [column]


def _known(name: str, modalities: Sequence[str]) -> str:
    found = name if name in modalities else find_modality(str(name))
    if found is None or found not in modalities:
        raise ModelError(f"images of '{name}'; the model knows {', '.join(modalities)}")
    return found


def make_batch(
    loaded: LoadedModel, samples: Sequence[Mapping[str, ImageLike]], cameras: Sequence[int], start: int
) -> ImageBatch:
    """Read, resize and normalise some samples as a dataset does; `start` is the number of the first."""
    shown = [_show(loaded, sample, number) for number, sample in enumerate(samples, start)]
    numbers, size = range(start, start + len(samples)), loaded.config.transforms.size
    return join_samples(shown, loaded.modalities, size, cameras, numbers)


def _show(loaded: LoadedModel, sample: Mapping[str, ImageLike], number: int) -> dict[str, Floats]:
    """The images of a sample as the model sees them, each (3, H, W)."""
    data, transforms = loaded.config.data, loaded.config.transforms
    size = transforms.size
    pixels = {}
    for name, image in sample.items():
        window = (data.windows or {}).get(name)
        try:
            pixels[name] = as_pixels(image, window, size if data.scaled_decode else None)
        except DataError as error:
            raise DataError(f"sample {number}, '{name}': {error}") from None
    check_aligned(pixels, {name: _label(image, number) for name, image in sample.items()})
    return {
        name: normalise(loaded.resize(image, size, transforms.test_resize), transforms.mean, transforms.std)
        for name, image in pixels.items()
    }


def _label(image: ImageLike, number: int) -> str:
    if isinstance(image, (Image.Image, np.ndarray)) or is_tensor(image):
        return f"sample {number}"
    return image.path if isinstance(image, ImageRef) else f"{image}"
