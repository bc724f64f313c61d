"""From the rows of a manifest to images as a model sees them in test: in numpy, one by one or in batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from slimreid.arrays import Bools, Floats, Ints, Pixels
from slimreid.config import Config, DataConfig, TransformConfig
from slimreid.data.images.cache import DiskCache, ImageCache, RamCache, cache_key
from slimreid.data.images.decode import read_images
from slimreid.data.images.resize import resize
from slimreid.data.manifest import SPLITS, LabelEncoder, Manifest, Sample, Split
from slimreid.data.workers import work_ahead
from slimreid.errors import ConfigError, DataError

Resize = Callable[[Pixels, tuple[int, int], str], Pixels]
"""(H, W, 3) uint8, size and mode to (3, *size) uint8."""

logger = logging.getLogger(__name__)


class SampleReader:
    """Reads samples of some splits of a manifest; `mode` and `resize` are how images are resized.

    Raises `DataError` where there are none, `ConfigError` for windows of modalities that are not there.
    """

    def __init__(
        self,
        manifest: Manifest,
        splits: Sequence[Split],
        transforms: TransformConfig,
        data: DataConfig,
        *,
        mode: str | None = None,
        resize: Resize = resize,
    ) -> None:
        self.samples: tuple[Sample, ...] = manifest.select(*splits)
        if not self.samples:
            raise DataError(f"{manifest.root}: the manifest has no rows of split {' or '.join(splits)}")
        self.root = manifest.root
        self.modalities = manifest.modalities
        self.transforms = transforms
        self.size = transforms.size
        self.mode = mode or transforms.test_resize
        self.windows = data.windows or {}
        for name in self.windows:
            if name not in manifest.modalities:
                raise ConfigError(f"data.windows.{name}: the data has {', '.join(manifest.modalities)} only")
        self.on_error = data.on_error
        self.dropped: dict[int, str] = {}
        """Row -> message."""
        self.at_least = self.size if data.scaled_decode else None
        self.cache = _make_cache(data, manifest.root, self.size)
        self._resize = resize

    def __len__(self) -> int:
        return len(self.samples)

    def resized(self, sample: Sample) -> dict[str, Pixels]:
        """The images of a sample as (3, H, W) uint8; raises `DataError` for a broken file."""
        pixels = None

        def make(name: str) -> Pixels:
            nonlocal pixels
            if pixels is None:  # read the whole sample once: a strip holds all its modalities
                pixels = read_images(sample.images, self.root, self.windows, self.at_least)
                check_aligned(pixels, {n: str(self.root / i.path) for n, i in sample.images.items()})
            return self._resize(pixels[name], self.size, self.mode)

        result = {}
        for name, image in sample.images.items():
            if self.cache is None:
                result[name] = make(name)
                continue
            key = cache_key(self.root, image, self.windows.get(name), self.size, self.mode, self.at_least)
            result[name] = self.cache.get(key, lambda name=name: make(name))  # type: ignore[misc]
        return result

    def read(self, number: int) -> dict[str, Floats]:
        """The images (3, H, W) of a sample as a model sees them; raises `DataError` for a broken file."""
        mean, std = self.transforms.mean, self.transforms.std
        return {name: normalise(x, mean, std) for name, x in self.resized(self.samples[number]).items()}

    def drop(self, row: int, message: str) -> None:
        """Leave out a sample that cannot be read, logged once; `on_error: raise` raises `DataError`."""
        if self.on_error == "raise":
            raise DataError(f"{message} (or leave it out: --skip-broken, in training data.on_error skip)")
        if row not in self.dropped:
            self.dropped[row] = message
            logger.warning("sample dropped: %s", message)


def _make_cache(data: DataConfig, root: Path, size: tuple[int, int]) -> ImageCache | None:
    if data.cache == "ram":
        return RamCache()
    if data.cache == "disk":
        return DiskCache(Path(data.cache_dir) if data.cache_dir else root / ".cache", size)
    return None


def broken_message(sample: Sample, error: DataError) -> str:
    """How a sample whose files cannot be read is spoken of."""
    return f"row {sample.row}: {error}"


@dataclass(frozen=True)
class _Read:
    """A batch as it was read, and (row, message) of each sample that could not be."""

    batch: ImageBatch
    broken: list[tuple[int, str]] = field(default_factory=list)


class BatchReader:
    """Iterates over batches of `config.batch.test` samples, not augmented.

    A broken sample raises `DataError`, or, with `on_error: skip`, is logged and kept in `dropped`
    (row -> message). `config.data.workers` threads read ahead; decoding and resizing leave Python's lock.
    """

    def __init__(
        self, config: Config, manifest: Manifest, label_encoder: LabelEncoder, resize: Resize = resize
    ) -> None:
        self.reader = SampleReader(manifest, SPLITS, config.transforms, config.data, resize=resize)
        self.label_encoder = label_encoder
        self.workers = config.data.workers
        self.dropped = self.reader.dropped
        rows, size = range(len(self.reader)), config.batch.test
        self._batches = [rows[at : at + size] for at in range(0, len(rows), size)]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[ImageBatch]:
        ahead = partial(work_ahead, ahead=2 * self.workers, threads=self.workers)
        for read in (ahead if self.workers else map)(self._read, self._batches):
            for row, message in read.broken:
                self.reader.drop(row, message)
            if len(read.batch):
                yield read.batch

    def _read(self, rows: range) -> _Read:
        samples, there, broken = [], [], []
        for row in rows:
            try:
                samples.append(self.reader.read(row))
                there.append(row)
            except DataError as error:
                broken.append((row, broken_message(self.reader.samples[row], error)))
        cameras = [self.label_encoder.camera[self.reader.samples[row].camera] for row in there]
        reader = self.reader
        return _Read(join_samples(samples, reader.modalities, reader.size, cameras, there), broken)


def normalise(image: Pixels, mean: float, std: float) -> Floats:
    """(3, H, W) uint8 to contiguous float32 with (x / 255 − mean) / std."""
    x = image.astype(np.float32, order="C")
    x *= np.float32(1 / (255 * std))
    x -= np.float32(mean / std)
    return x


def check_aligned(pixels: Mapping[str, Pixels], names: Mapping[str, str]) -> None:
    """Refuse images (H, W, 3) of one sample that differ in aspect: their patches would not match.

    Raises `DataError` with the image's entry in `names`.
    """
    (first, image), *others = pixels.items()
    height, width = image.shape[:2]
    for name, other in others:
        H, W = other.shape[:2]
        if not same_aspect((height, width), (H, W)):
            raise DataError(
                f"{names[name]}: '{name}' is {W}×{H} but '{first}' is {width}×{height}; modalities of one "
                f"sample must be aligned, crop or resize them to one shape"
            )


def same_aspect(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two sizes have the same aspect, up to one pixel."""
    (a, b), (c, d) = first, second
    return abs(a * d - b * c) <= max(a, b, c, d)


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """B samples, each an object seen in up to M modalities at once, ready for a model.

    | field     | shape                    | what                                                 |
    |-----------|--------------------------|------------------------------------------------------|
    | `images`  | M × (B, 3, H, W) float32 | per modality, in canonical order; zeros where absent |
    | `present` | (B, M) bool              | which modalities each sample has; never none         |
    | `camera`  | (B,) int64               | number of the camera in training; others are unknown |
    | `index`   | (B,) int64               | number of the sample                                 |
    """

    images: dict[str, Floats]
    present: Bools
    camera: Ints
    index: Ints

    def __len__(self) -> int:
        return len(self.index)

    @property
    def modalities(self) -> tuple[str, ...]:
        """Names of all M modalities, in the order of the columns of `present`."""
        return tuple(self.images)

    def presence_of(self, modalities: Sequence[str]) -> Bools:
        """Which of `modalities` each sample has, in that order: (B, M) bool; unknown ones are absent."""
        column = {name: self.present[:, m] for m, name in enumerate(self.images)}
        absent = np.zeros(len(self), np.bool_)
        return np.stack([column.get(name, absent) for name in modalities], axis=1)

    def only(self, subset: Sequence[str]) -> ImageBatch | None:
        """The samples that have one of these modalities, without their others; None for none."""
        names = [name for name in self.modalities if name in subset]
        if not names:
            return None
        rows = np.flatnonzero(self.presence_of(names).any(axis=1))
        return self.take(rows, names) if len(rows) else None

    def take(self, rows: Ints, modalities: Sequence[str]) -> ImageBatch:
        """The samples at `rows` (n,), ascending, in some modalities; copies nothing where these are all."""
        at = slice(None) if len(rows) == len(self) else rows
        return ImageBatch(
            {name: image[at] for name, image in self.images.items() if name in modalities},
            self.presence_of([name for name in self.images if name in modalities])[at],
            self.camera[at],
            self.index[at],
        )

    def by_subset(self) -> Iterator[tuple[tuple[str, ...], Ints]]:
        """Each set of modalities that samples have, and the samples (n,) that have exactly these."""
        return by_subset(self.modalities, self.present)


def by_subset(modalities: Sequence[str], present: Bools) -> Iterator[tuple[tuple[str, ...], Ints]]:
    """Each set of modalities that samples have, and those (n,) that have just these; `present` (B, M)."""
    kinds, which = np.unique(present, axis=0, return_inverse=True)
    for number, mask in enumerate(kinds):
        subset = tuple(name for name, there in zip(modalities, mask, strict=True) if there)
        yield subset, np.flatnonzero(which.reshape(-1) == number)


def join_samples(
    samples: Sequence[Mapping[str, Floats]],
    modalities: Sequence[str],
    size: tuple[int, int],
    cameras: Sequence[int],
    index: Sequence[int],
) -> ImageBatch:
    """Samples {modality: (3, *size)} as a batch; absent modalities are zeros."""
    images = {name: np.zeros((len(samples), 3, *size), np.float32) for name in modalities}
    present = np.zeros((len(samples), len(modalities)), np.bool_)
    for b, sample in enumerate(samples):
        for m, name in enumerate(modalities):
            if name in sample:
                images[name][b] = sample[name]
                present[b, m] = True
    return ImageBatch(images, present, np.array(cameras, np.int64), np.array(index, np.int64))
