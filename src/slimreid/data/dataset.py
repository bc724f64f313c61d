"""From a manifest to batches of aligned multi-spectral images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from slimreid.config import DataConfig, TransformConfig
from slimreid.data.augment.transforms import TestTransform, TrainTransform, resize
from slimreid.data.batches import ModalBatch
from slimreid.data.images.cache import DiskCache, ImageCache, NoCache, RamCache, cache_key
from slimreid.data.images.decode import read_images
from slimreid.data.images.window import Pixels
from slimreid.data.label_encoder import LabelEncoder
from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.data.sampler import SampleKey
from slimreid.errors import ConfigError, DataError


@dataclass(frozen=True)
class LoadedSample:
    """One sample on its way into a batch."""

    images: dict[str, Tensor]
    identity: int
    camera: int
    scene: int
    index: int
    paths: Mapping[str, str]


@dataclass(frozen=True)
class BrokenSample:
    """A sample whose files cannot be read."""

    index: int
    message: str


class ReIDDataset(Dataset[LoadedSample]):
    """The samples of some splits of a manifest; `train` chooses augmentation.

    `dataset[key]` takes a row number or a `SampleKey` and raises `DataError` for a broken file.
    """

    def __init__(
        self,
        manifest: Manifest,
        splits: Sequence[Split],
        transforms: TransformConfig,
        *,
        train: bool = False,
        data: DataConfig | None = None,
        label_encoder: LabelEncoder | None = None,
        seed: int = 0,
    ) -> None:
        data = data or DataConfig()
        self.samples: tuple[Sample, ...] = manifest.select(*splits)
        if not self.samples:
            raise DataError(f"{manifest.root}: the manifest has no rows of split {' or '.join(splits)}")
        self.root = manifest.root
        self.modalities = manifest.modalities
        self.size = transforms.size
        self.transform = TrainTransform(transforms) if train else TestTransform(transforms)
        self.label_encoder = label_encoder or LabelEncoder.from_manifest(manifest)
        self.windows = data.windows or {}
        for name in self.windows:
            if name not in manifest.modalities:
                raise ConfigError(f"data.windows.{name}: the data has {', '.join(manifest.modalities)} only")
        self.on_error = data.on_error
        self.at_least = self.size if data.scaled_decode else None
        self.seed = seed
        self.cache = _make_cache(data, manifest.root, self.size)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def identities(self) -> list[int]:
        """Identity number of every sample."""
        return [self.label_encoder.identity[s.identity] for s in self.samples]

    @property
    def cameras(self) -> list[int]:
        """Camera number of every sample."""
        return [self.label_encoder.camera[s.camera] for s in self.samples]

    def __getitem__(self, key: int | SampleKey) -> LoadedSample:
        key = key if isinstance(key, SampleKey) else SampleKey(int(key))
        sample = self.samples[key.sample]
        rng = np.random.default_rng([self.seed, key.epoch, key.sample, key.draw])
        images = self.transform(self.resized(sample), rng)
        paths = {name: str(self.root / sample.images[name].path) for name in images}
        identity, camera, scene = self.label_encoder.numbers(sample)
        return LoadedSample(images, identity, camera, scene, key.sample, paths)

    def __getitems__(self, keys: Sequence[int | SampleKey]) -> list[LoadedSample | BrokenSample]:
        """Several samples, as the loader asks for them; broken ones are returned as such."""
        loaded: list[LoadedSample | BrokenSample] = []
        for key in keys:
            try:
                loaded.append(self[key])
            except DataError as error:
                index = key.sample if isinstance(key, SampleKey) else key
                loaded.append(BrokenSample(index, f"row {self.samples[index].row}: {error}"))
        return loaded

    def resized(self, sample: Sample) -> dict[str, Tensor]:
        """The images of a sample as (3, H, W) uint8, before augmentation."""
        mode = self.transform.mode
        pixels = None

        def make(name: str) -> Tensor:
            nonlocal pixels
            if pixels is None:  # read the whole sample once: a strip holds all its spectra
                pixels = read_images(sample.images, self.root, self.windows, self.at_least)
                check_aligned(pixels, {n: str(self.root / i.path) for n, i in sample.images.items()})
            return resize(pixels[name], self.size, mode)

        result = {}
        for name, image in sample.images.items():
            if isinstance(self.cache, NoCache):
                result[name] = make(name)
                continue
            key = cache_key(self.root, image, self.windows.get(name), self.size, mode, self.at_least)
            result[name] = self.cache.get(key, lambda name=name: make(name))  # type: ignore[misc]
        return result

    def collate(self, samples: Sequence[LoadedSample | BrokenSample]) -> ModalBatch:
        """Join samples to a batch; absent modalities are zeros, broken samples are listed in `dropped`."""
        good = [s for s in samples if isinstance(s, LoadedSample)]
        broken = tuple((s.index, s.message) for s in samples if isinstance(s, BrokenSample))
        present = torch.zeros(len(good), len(self.modalities), dtype=torch.bool)
        images = {}
        for m, name in enumerate(self.modalities):
            stacked = torch.zeros(len(good), 3, *self.size)
            for b, sample in enumerate(good):
                if name in sample.images:
                    stacked[b] = sample.images[name]
                    present[b, m] = True
            images[name] = stacked
        return ModalBatch(
            images=images,
            present=present,
            identity=torch.tensor([s.identity for s in good], dtype=torch.int64),
            camera=torch.tensor([s.camera for s in good], dtype=torch.int64),
            scene=torch.tensor([s.scene for s in good], dtype=torch.int64),
            index=torch.tensor([s.index for s in good], dtype=torch.int64),
            paths=tuple(s.paths for s in good),
            dropped=broken,
        )


def check_aligned(pixels: Mapping[str, Pixels], names: Mapping[str, str]) -> None:
    """Refuse images of one sample that differ in aspect: their patches would not match.

    Raises `DataError` with the image's entry in `names`.
    """
    (first, image), *others = pixels.items()
    height, width = image.shape[:2]
    for name, other in others:
        H, W = other.shape[:2]
        if abs(H * width - W * height) > max(height, width, H, W):
            raise DataError(
                f"{names[name]}: '{name}' is {W}×{H} but '{first}' is {width}×{height}; spectra of one "
                f"sample must be aligned, crop or resize them to one shape"
            )


def _make_cache(data: DataConfig, root: Path, size: tuple[int, int]) -> ImageCache:
    if data.cache == "ram":
        return RamCache()
    if data.cache == "disk":
        return DiskCache(Path(data.cache_dir) if data.cache_dir else root / ".cache", size)
    return NoCache()
