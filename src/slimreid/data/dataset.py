"""From a manifest to batches of aligned multi-modal images, for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from slimreid.config import DataConfig, TransformConfig
from slimreid.data.augment.transforms import TestTransform, TrainTransform, fast_resize
from slimreid.data.batches import ModalBatch
from slimreid.data.manifest import LabelEncoder, Manifest, Sample, Split
from slimreid.data.sample_reader import SampleReader, broken_message, join_samples
from slimreid.data.sampler import SampleKey
from slimreid.errors import DataError


@dataclass(frozen=True)
class LoadedSample:
    """One sample on its way into a batch."""

    images: dict[str, Tensor]
    identity: int
    camera: int
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
        self.transform = TrainTransform(transforms) if train else TestTransform(transforms)
        self.reader = SampleReader(
            manifest, splits, transforms, data or DataConfig(), mode=self.transform.mode, resize=fast_resize
        )
        self.samples = self.reader.samples
        self.modalities = manifest.modalities
        self.label_encoder = label_encoder or LabelEncoder.from_manifest(manifest)
        self.seed = seed

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
        paths = {name: str(self.reader.root / sample.images[name].path) for name in images}
        identity, camera = (
            self.label_encoder.identity[sample.identity],
            self.label_encoder.camera[sample.camera],
        )
        return LoadedSample(images, identity, camera, key.sample, paths)

    def __getitems__(self, keys: Sequence[int | SampleKey]) -> list[LoadedSample | BrokenSample]:
        """Several samples, as the loader asks for them; broken ones are returned as such."""
        loaded: list[LoadedSample | BrokenSample] = []
        for key in keys:
            try:
                loaded.append(self[key])
            except DataError as error:
                index = key.sample if isinstance(key, SampleKey) else key
                loaded.append(BrokenSample(index, broken_message(self.samples[index], error)))
        return loaded

    def resized(self, sample: Sample) -> dict[str, Tensor]:
        """The images of a sample as (3, H, W) uint8, before augmentation."""
        return {name: torch.from_numpy(image) for name, image in self.reader.resized(sample).items()}

    def collate(self, samples: Sequence[LoadedSample | BrokenSample]) -> ModalBatch:
        """Join samples to a batch; absent modalities are zeros, broken samples are listed in `dropped`."""
        good = [s for s in samples if isinstance(s, LoadedSample)]
        broken = tuple((s.index, s.message) for s in samples if isinstance(s, BrokenSample))
        images = [{name: image.numpy() for name, image in s.images.items()} for s in good]
        cameras, index = [s.camera for s in good], [s.index for s in good]
        joined = join_samples(images, self.modalities, self.reader.size, cameras, index)
        batch, dtype = ModalBatch.from_images(joined), torch.get_default_dtype()
        return replace(
            batch,
            images={name: image.to(dtype) for name, image in batch.images.items()},  # as weights are
            identity=torch.tensor([s.identity for s in good], dtype=torch.int64),
            paths=tuple(s.paths for s in good),
            dropped=broken,
        )
