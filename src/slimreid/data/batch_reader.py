"""All samples of a manifest in order, in batches for a model in use; threads read ahead."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from slimreid.config import Config
from slimreid.data.image_batch import ImageBatch, join_samples
from slimreid.data.images.resize import resize
from slimreid.data.label_encoder import LabelEncoder
from slimreid.data.manifest import SPLITS, Manifest
from slimreid.data.sample_reader import Resize, SampleReader, broken_message, stop_message
from slimreid.errors import DataError

logger = logging.getLogger(__name__)


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
        self.dropped: dict[int, str] = {}
        rows, size = range(len(self.reader)), config.batch.test
        self._batches = [rows[at : at + size] for at in range(0, len(rows), size)]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[ImageBatch]:
        for read in self._ahead() if self.workers else map(self._read, self._batches):
            for row, message in read.broken:
                if self.reader.on_error == "raise":
                    raise DataError(stop_message(message))
                self.dropped[row] = message
                logger.warning("sample dropped: %s", message)
            if len(read.batch):
                yield read.batch

    def _ahead(self) -> Iterator[_Read]:
        """What is read, in order; each thread is one batch ahead of what is used."""
        waiting: deque[Future[_Read]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="reader")
        try:
            for rows in self._batches:
                waiting.append(pool.submit(self._read, rows))
                if len(waiting) > 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, rows: range) -> _Read:
        samples, there, broken = [], [], []
        for row in rows:
            try:
                samples.append(self.reader.read(row))
                there.append(row)
            except DataError as error:
                broken.append((row, broken_message(self.reader.samples[row], error)))
        cameras = [self.label_encoder.numbers(self.reader.samples[row])[1] for row in there]
        reader = self.reader
        return _Read(join_samples(samples, reader.modalities, reader.size, cameras, there), broken)
