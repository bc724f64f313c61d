"""The samples that an exported model is checked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slimreid.data.loader import eval_loader
from slimreid.data.manifest import SPLITS, Manifest, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.query_gallery import SPLITS_OF, parts_of, retrieval_labels
from slimreid.inference.exported_card import Subset
from slimreid.inference.features.data import ModelData, camera_numbers, eval_config, open_data
from slimreid.inference.loaded_model import LoadedModel
from slimreid.progress import progress

MOST_SAMPLES = 512
"""Samples that accuracy is measured on at most."""
NOISE_SAMPLES = 39
"""Samples of noise, where there is nothing else."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CheckSamples:
    """n samples as a model sees them."""

    images: dict[str, Floats]
    """Per modality of the model (n, 3, H, W), zeros where absent."""
    present: Bools
    """(n, M): which modalities each sample has."""
    camera: Ints
    """(n,): those of training are 0 … cameras − 1."""
    source: str
    """What they are, for a reader."""
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
        return {name: self.images[name][rows] for name in subset}, self.camera[rows]


def check_samples(loaded: LoadedModel, manifest: Path | None = None) -> CheckSamples:
    """Samples of a manifest, by default of the test split of the model's own data; noise if that is gone.

    Whole identities are drawn until there are enough. Raises `DataError` for a manifest that is given and
    is not there, is faulty, or has no sample.
    """
    if manifest is None:
        try:
            data = open_data(loaded)
        except (DataError, ConfigError):
            return noise_samples(loaded)
    else:
        data = open_data(loaded, manifest)
    parts = parts_of(data.manifest)
    splits = SPLITS_OF[parts[-1]] if parts else SPLITS
    rows = [sample for sample in data.manifest.samples if sample.split in splits]
    if not rows:
        raise DataError(f"{data.path}: no samples to check the exported model on")
    chosen = draw_identities(rows, MOST_SAMPLES)
    what = f"{len(chosen)} of {len(rows)} samples of {data.name} ({' and '.join(splits) if parts else 'all'})"
    return _read(loaded, data, data.manifest.with_samples(chosen), what, splits if parts else ())


def draw_identities(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Samples of identities drawn by chance, always the same, until there are `most`; all if these are fewer.

    The samples keep their order; of a single large identity the first ones are taken.
    """
    groups: dict[str, list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(sample.identity, []).append(row)
    names = sorted(groups)
    rows: list[int] = []
    for at in np.random.default_rng(0).permutation(len(names)):
        if len(rows) >= most:
            break
        rows += groups[names[at]]
    return [samples[row] for row in sorted(rows[: max(most, 1)])]


def _read(
    loaded: LoadedModel, data: ModelData, manifest: Manifest, what: str, splits: Sequence[str]
) -> CheckSamples:
    """Read all images of a manifest; `splits`: queries and gallery, or none of these."""
    config = eval_config(loaded, data, batch=32, workers=0)
    book = camera_numbers(loaded, data)
    loader = eval_loader(config, SPLITS, manifest, label_encoder=book)
    batches = list(progress(loader, "reading samples", len(loader)))
    index = np.concatenate([batch.index.numpy() for batch in batches])
    samples = [manifest.samples[row] for row in index.tolist()]
    size = loaded.config.transforms.size

    def images_of(name: str) -> Floats:
        blank = np.zeros((1, 3, *size), np.float32)
        parts = [b.images[name].numpy() if name in b.images else np.repeat(blank, len(b), 0) for b in batches]
        return np.concatenate(parts)

    found = CheckSamples(
        images={name: images_of(name) for name in loaded.modalities},
        present=np.concatenate([batch.presence_of(loaded.modalities).numpy() for batch in batches]),
        camera=np.concatenate([batch.camera.numpy() for batch in batches]),
        source=what,
    )
    if not splits:
        return found
    query, gallery = (
        np.array([i for i, s in enumerate(samples) if s.split == split], np.int64)
        for split in (splits[0], splits[-1])
    )
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
        source="random noise, because there are no images of the model's data; give some with --calibrate",
    )
