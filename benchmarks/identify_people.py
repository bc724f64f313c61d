"""The people that `identify.py` enrols and searches for: world, trained model, features in every subset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slimreid.config.files import load_config
from slimreid.data.images.decode import read_images
from slimreid.data.manifest import Manifest
from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.generate import is_world, make_world
from slimreid.gallery.decisions.quality import image_quality
from slimreid.inference.features.data import ModelData, open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import Similarity
from slimreid.modalities import all_subsets, subset_name
from slimreid.progress import progress
from slimreid.runs.folder import RunFolder
from slimreid.training.loop import train

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """How much is done."""

    world: SynthOptions
    changes: tuple[str, ...]


FULL = Size(
    SynthOptions(
        identities=560, cameras=4, images_per_camera=4, size=(96, 48), difficulty=0.3, test_share=4 / 7
    ),
    (
        "train.epochs=5",
        "transforms.height=96",
        "transforms.width=48",
        "data.workers=0",
        "train.select_on=last",
    ),
)
FAST = Size(
    SynthOptions(
        identities=28, cameras=2, images_per_camera=2, size=(32, 16), difficulty=0.2, test_share=4 / 7
    ),
    (
        "train.epochs=1",
        "optim.warmup_epochs=0",
        "transforms.height=32",
        "transforms.width=16",
        "batch.num_ids=4",
        "batch.num_instances=2",
        "data.workers=0",
        "train.select_on=last",
    ),
)


def prepare(folder: Path, size: Size, seed: int) -> LoadedModel:
    """The world and the trained model of a seed, made where they are not there yet."""
    world, run = folder / f"seed{seed}" / "world", folder / f"seed{seed}" / "model"
    options = replace(size.world, seed=seed)
    if not is_world(world, options):
        make_world(world, options, val_identities=0.0)
    changes = [*size.changes, f"data.manifest={(world / 'manifest.csv').as_posix()}", f"seed={seed}"]
    if not RunFolder(run).finished:
        train(load_config(["synthetic/sdtps"], changes), run, "auto")
    return load(run)


@dataclass(frozen=True, eq=False)
class People:
    """Features of all test samples in every subset of the modalities, and who takes which part."""

    similarity: Similarity
    features: NDArray[np.float32]
    """(S, n, D)."""
    identity: NDArray[np.str_]
    camera: NDArray[np.str_]
    quality: NDArray[np.float64]
    """(n, M), of each modality's image."""
    rows: Ints
    """Samples that are enrolled."""
    mated: Ints
    """Further samples of enrolled people."""
    strangers: Ints
    """Samples that thresholds are chosen on."""
    held_out: Ints
    """Samples of other strangers."""

    @cached_property
    def has(self) -> NDArray[np.bool_]:
        """(S, M): the modalities of each subset."""
        return np.array(
            [[m in subset for m in self.similarity.modalities] for subset in self.similarity.subsets]
        )

    @cached_property
    def names(self) -> NDArray[np.str_]:
        """(S,): short names of the subsets."""
        return np.array([subset_name(s, self.similarity.modalities) for s in self.similarity.subsets])


def gather(loaded: LoadedModel, seed: int) -> People:
    """Embed the test samples in every subset and give everybody a part."""
    data = _test_samples(open_data(loaded))
    samples = data.manifest.samples
    subsets = all_subsets(loaded.modalities)
    found = extract_features(
        loaded, data, subsets, Extraction(workers=0, cache=loaded.path.parent / "features")
    )
    identity, camera = (np.array([getattr(s, name) for s in samples]) for name in ("identity", "camera"))
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.unique(identity))
    half, quarter = len(people) // 2, len(people) // 4
    enrolled = np.zeros(len(samples), dtype=np.bool_)
    cameras = np.unique(camera)
    for name in people[:half]:
        chosen = rng.choice(cameras, len(cameras) // 2, replace=False)
        enrolled |= (identity == name) & np.isin(camera, chosen)
    return People(
        loaded.similarity(),
        np.stack([found[subset].get() for subset in subsets]),
        identity,
        camera,
        _qualities(data.manifest, loaded.modalities),
        np.flatnonzero(enrolled),
        np.flatnonzero(np.isin(identity, people[:half]) & ~enrolled),
        np.flatnonzero(np.isin(identity, people[half : half + quarter])),
        np.flatnonzero(np.isin(identity, people[half + quarter :])),
    )


def _test_samples(data: ModelData) -> ModelData:
    """Each sample of the test once, though it is both query and gallery in the manifest."""
    once = {tuple(s.images.values()): s for s in data.manifest.samples if s.split in ("query", "gallery")}
    return replace(data, manifest=data.manifest.with_samples(list(once.values())))


def _qualities(manifest: Manifest, modalities: Sequence[str]) -> NDArray[np.float64]:
    values = np.zeros((len(manifest.samples), len(modalities)))
    for n, sample in enumerate(progress(manifest.samples, "judging images")):
        images = read_images(sample.images, manifest.root)
        values[n] = [image_quality(images[name]).value for name in modalities]
    return values
