"""The samples that an exported model is checked on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.arrays import Bools, Floats, Ints, Pixels
from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.data.sample_reader import SampleReader, broken_message, normalise
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.query_gallery import SPLITS_OF, parts_of, retrieval_labels
from slimreid.inference.features.data import ModelData, camera_numbers, eval_config, open_data
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import Subset
from slimreid.progress import progress

MOST_SAMPLES = 4096
"""Samples that accuracy is measured on at most: 1.2 GB of three modalities at 256×128."""
NOISE_SAMPLES = 39
"""Samples of noise, where there is nothing else."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CheckSamples:
    """n samples as a model sees them."""

    images: Mapping[str, Pixels | Floats]
    """Per modality of the model (n, 3, H, W), zeros where absent: uint8, or float32 as a model takes it."""
    present: Bools
    """(n, M): which modalities each sample has."""
    camera: Ints
    """(n,): those of training are 0 … cameras − 1."""
    source: str
    """What they are, for a reader."""
    scale: tuple[float, float] = (0.5, 0.5)
    """Mean and standard deviation that images in uint8 are normalised by."""
    whole: bool = True
    """Whether they are all that there were, not drawn from more."""
    query: Ints | None = None
    """Samples that are searched for, and those among which; None where there are no labels."""
    gallery: Ints | None = None
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.camera)

    def have(self, subset: Subset) -> Ints:
        """Numbers of the samples that have all modalities of a subset."""
        columns = [m for m, name in enumerate(self.images) if name in subset]
        return np.flatnonzero(self.present[:, columns].all(axis=1))

    def take(self, subset: Subset, rows: Ints) -> tuple[dict[str, Floats], Ints]:
        """Images of some samples in the modalities of a subset, and their cameras."""
        return {name: self._image(name, rows) for name in subset}, self.camera[rows]

    def _image(self, name: str, rows: Ints) -> Floats:
        image: Any = self.images[name][rows]
        found: Floats = normalise(image, *self.scale) if image.dtype == np.uint8 else image
        return found


def check_samples(loaded: LoadedModel, manifest: Path | None = None) -> CheckSamples:
    """Samples of a manifest, by default of the test split of the model's own data; noise if that is gone.

    Of more than `MOST_SAMPLES`, whole identities are drawn, so that a query keeps all its matches. Raises
    `DataError` for a manifest that is given and is not there, is faulty, or has no sample.
    """
    try:
        data = open_data(loaded, manifest)
    except (DataError, ConfigError):
        if manifest is not None:
            raise
        return noise_samples(loaded)
    parts = parts_of(data.manifest)
    splits = SPLITS_OF[parts[-1]] if parts else SPLITS
    rows = [sample for sample in data.manifest.samples if sample.split in splits]
    if not rows:
        raise DataError(f"{data.path}: no samples to check the exported model on")
    chosen = draw_identities(rows, MOST_SAMPLES)
    what = f"{len(chosen)} of {len(rows)} samples of {data.name} ({' and '.join(splits) if parts else 'all'})"
    found = _read(loaded, data, data.manifest.with_samples(chosen), what, splits if parts else ())
    return replace(found, whole=len(chosen) == len(rows))


def draw_identities(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Samples of whole identities drawn by chance, always the same ones: at most `most`, in their order.

    Only where the first identity alone has more is it cut, to its first ones.
    """
    groups: dict[str, list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(sample.identity, []).append(row)
    names = sorted(groups)
    rows: list[int] = []
    for at in np.random.default_rng(0).permutation(len(names)):
        if rows and len(rows) + len(groups[names[at]]) > most:
            break
        rows += groups[names[at]][:most]
    return [samples[row] for row in sorted(rows)]


def _read(
    loaded: LoadedModel, data: ModelData, manifest: Manifest, what: str, splits: Sequence[str]
) -> CheckSamples:
    """Read all images of a manifest; `splits`: queries and gallery, or none of these."""
    transforms, options = loaded.config.transforms, eval_config(loaded, data).data
    reader = SampleReader(manifest, SPLITS, transforms, options, resize=loaded.resize)
    images = {name: np.zeros((len(reader), 3, *reader.size), np.uint8) for name in loaded.modalities}
    present = np.zeros((len(reader), len(images)), np.bool_)
    for row, sample in enumerate(progress(reader.samples, "reading samples")):
        try:
            pixels = reader.resized(sample)
        except DataError as error:
            reader.drop(row, broken_message(sample, error))
            continue
        for m, name in enumerate(images):
            if name in pixels:
                images[name][row], present[row, m] = pixels[name], True
    rows = np.flatnonzero(present.any(axis=1))
    samples = [reader.samples[row] for row in rows.tolist()]
    if not samples:
        raise DataError(f"{data.path}: no sample to check the exported model on can be read")
    book = camera_numbers(loaded, data)
    found = CheckSamples(
        images=images if len(rows) == len(reader) else {name: x[rows] for name, x in images.items()},
        present=present[rows],
        camera=np.array([book.camera[sample.camera] for sample in samples], np.int64),
        source=what,
        scale=(transforms.mean, transforms.std),
    )
    if not splits:
        return found
    names = np.array([sample.split for sample in samples])
    query, gallery = (np.flatnonzero(names == split) for split in (splits[0], splits[-1]))
    labels = retrieval_labels(samples, query.tolist(), gallery.tolist(), manifest.protocol)
    return replace(found, query=query, gallery=gallery, labels=labels)


def noise_samples(loaded: LoadedModel) -> CheckSamples:
    """Random images of every modality, for models whose data are not there."""
    rng = np.random.default_rng(0)
    shape = (NOISE_SAMPLES, 3, *loaded.config.transforms.size)
    images = {name: rng.standard_normal(shape, dtype=np.float32) for name in loaded.modalities}
    return CheckSamples(
        images=images,
        present=np.ones((NOISE_SAMPLES, len(images)), dtype=np.bool_),
        camera=rng.integers(-1, max(1, len(loaded.cameras)), NOISE_SAMPLES),
        source="random noise, because there are no images of the model's data; give some with --data",
    )
