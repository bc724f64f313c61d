"""From rows of images to rows of embeddings: what one process does, and each actor of a pool."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from slimreid.arrays import Floats
from slimreid.bulk.images import is_url, read_pixels
from slimreid.data.images.resize import resize
from slimreid.data.manifest import images_from_json
from slimreid.data.sample_reader import check_aligned, join_samples, normalise
from slimreid.errors import DataError, SlimReIDWarning
from slimreid.inference.embedding_sets.tables import Embedded, Status, join_columns
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import join_branches

READERS, FETCHERS = 2, 16
"""Threads that read the next images while the model works: from files; from elsewhere, where most wait."""


@dataclass(frozen=True)
class Embedding:
    """What is to be computed of every row; small, so that it can be sent to other machines."""

    model: str
    """Path of the model, the same on all machines."""
    feature: str
    modalities: tuple[str, ...]
    """What the model is shown."""
    cameras: bool
    """Whether cameras named as in training are the training cameras."""
    batch: int
    """Samples embedded at once."""
    device: str | None = "cpu"
    threads: int | None = None
    """Threads of an exported model; None = as `OMP_NUM_THREADS` says, else all cores."""


@dataclass(frozen=True)
class _Read:
    """One row: its images as the model sees them, or why there are none."""

    images: dict[str, Floats]
    status: Status
    error: str = ""
    hash: str = ""


class RowEmbedder:
    """Loads the model once; called with rows of images, it gives rows of embeddings.

    A row whose files cannot be read gets a status, and never stops the others.
    """

    def __init__(self, embedding: Embedding, loaded: LoadedModel | None = None) -> None:
        self.embedding = embedding
        if loaded is None:
            loaded = load(embedding.model, embedding.device, embedding.threads)
        self.loaded = loaded
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetcher")

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Embed some rows, `batch` of them at a time; the next ones are read meanwhile."""
        size = self.embedding.batch
        texts, cameras = rows["images"].to_pylist(), rows["camera"].to_pylist()
        parts = [join_columns(rows.slice(0, 0), self._embed([], []))]
        pool = self._fetchers if any(map(is_url, texts)) else self._readers
        reading = [pool.submit(self._read, text) for text in texts[:size]]
        for start in range(0, len(texts), size):
            read = [future.result() for future in reading]
            reading = [pool.submit(self._read, text) for text in texts[start + size : start + 2 * size]]
            found = self._embed(read, cameras[start : start + size])
            parts.append(join_columns(rows.slice(start, size), found))
        return pa.concat_tables(parts)

    def _read(self, text: str) -> _Read:
        images = {n: i for n, i in images_from_json(text).items() if n in self.embedding.modalities}
        if not images:
            return _Read({}, "no image", f"no image of {', '.join(self.embedding.modalities)}")
        data, transforms = self.loaded.config.data, self.loaded.config.transforms
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SlimReIDWarning)  # several pages: the first is meant
                pixels, digest = read_pixels(
                    images, data.windows or {}, transforms.size if data.scaled_decode else None
                )
            check_aligned(pixels, {name: image.path for name, image in images.items()})
        except DataError as error:
            return _Read({}, "unreadable", str(error))
        sized = {n: resize(x, transforms.size, transforms.test_resize) for n, x in pixels.items()}
        seen = {name: normalise(x, transforms.mean, transforms.std) for name, x in sized.items()}
        return _Read(seen, "ok", hash=digest)

    def _embed(self, read: Sequence[_Read], cameras: Sequence[str]) -> Embedded:
        D = self.loaded.sizes[self.embedding.feature]
        features = np.zeros((len(read), D), np.float32)
        status, errors = [each.status for each in read], [each.error for each in read]
        good = [number for number, each in enumerate(read) if each.status == "ok"]
        if good:
            size = self.loaded.config.transforms.size
            known = self.embedding.cameras
            numbers = [self.loaded.camera_number(cameras[row]) if known else -1 for row in good]
            names = self.loaded.modalities
            batch = join_samples([read[row].images for row in good], names, size, numbers, good)
            features[good] = join_branches(self.loaded.features(batch), self.embedding.feature)
        for row in np.flatnonzero(~np.isfinite(features).all(axis=1)).tolist():
            status[row], errors[row] = "not finite", "its feature has NaN or infinity"
        modalities = [[n for n in self.loaded.modalities if n in each.images] for each in read]
        return Embedded(features, modalities, [each.hash for each in read], status, errors)
