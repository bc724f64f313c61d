"""What all routes share: the gallery, the model, decoders, the queue, jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.concurrency import run_in_threadpool

from slimreid.arrays import Floats
from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError
from slimreid.gallery.embedder import Embedder, check_model, embed_samples
from slimreid.gallery.queries import Query, join_query
from slimreid.gallery.store.contract import Store, row_chunks
from slimreid.gallery.store.open import open_store
from slimreid.gallery.store.rows import ModelInfo
from slimreid.inference.load import load
from slimreid.serve.access import Access
from slimreid.serve.batching import Batcher, Shot
from slimreid.serve.decoding.messages import Decoded
from slimreid.serve.decoding.pool import DecodePool
from slimreid.serve.errors import TooLargeError
from slimreid.serve.http.uploads import Upload
from slimreid.serve.metrics import Metrics
from slimreid.serve.settings import Settings
from slimreid.serve.tokens import TokenFile

Result = TypeVar("Result")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CAMERAS_KEPT = 5.0
"""Seconds for which the list of cameras is kept at least."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A sample that was decoded and embedded."""

    upload: Upload
    decoded: Decoded
    feature: Floats
    """(D,)."""


class Service:
    """A gallery with its model, ready to be asked by many at once."""

    def __init__(
        self, store: Store, model: Embedder, settings: Settings, decoders: DecodePool | None = None
    ) -> None:
        """Raises `OtherModelError` where the model is not that of the gallery."""
        check_model(model, store.model, store.place)
        self.store, self.model, self.settings = store, model, settings
        self.metrics = Metrics()
        self.access = Access(settings)
        self.writing = threading.Lock()
        """Held from looking whether a sample is there until it is."""
        self.stopping = threading.Event()
        self.decoders = decoders or DecodePool(settings.decoders, settings.request)
        self._decoding = ThreadPoolExecutor(self.decoders.size, "decode")
        limits = settings.service
        self.batcher = Batcher(self._embed, batch=limits.batch, wait=limits.wait, capacity=limits.queue)
        self._cameras: tuple[float, Mapping[str, int]] = (0.0, {})

    def start(self) -> None:
        """Start what must run before the first request, and let the model take the memory it needs.

        Full batches are computed here: nobody waits for them, and memory does not grow under load.
        """
        self.decoders.start()
        grey = np.full((64, 64, 3), 128, np.uint8)
        samples = [dict.fromkeys(self.info.modalities, grey)] * self.settings.service.batch
        for _ in range(2):  # onnxruntime plans its memory in the first call and takes it in the second
            embed_samples(self.model, self.info.feature, samples, batch=len(samples))

    def stop(self) -> None:
        """Finish what runs and let go of everything."""
        self.stopping.set()
        self.batcher.stop()
        self._decoding.shutdown()
        self.decoders.stop()
        self.store.close()

    @property
    def info(self) -> ModelInfo:
        """The model as the gallery knows it."""
        return self.store.model

    @property
    def name(self) -> str:
        """The gallery, without the folders it lies in."""
        return self.store.place.rstrip("/").rpartition("/")[2]

    @property
    def hidden(self) -> Mapping[str, str]:
        """Paths of this machine that no answer shows -> what it shows."""
        place = self.store.place
        paths = {str(Path(place).absolute()): self.name, place: self.name}
        return {str(self.settings.state): "the service's folder", **paths}

    @property
    def host_names(self) -> frozenset[str]:
        """What a request may call this service."""
        own = {self.settings.host} if self.settings.host not in ("0.0.0.0", "::") else set()
        return frozenset({*_LOOPBACK, *own, *self.settings.names})

    def _embed(self, shots: Sequence[Shot]) -> Floats:
        samples, cameras = [dict(shot.images) for shot in shots], [shot.camera for shot in shots]
        batch = self.settings.service.batch
        found = embed_samples(self.model, self.info.feature, samples, cameras, batch)
        self.metrics.count_batch(len(samples))
        return found

    async def see(
        self, uploads: Sequence[Upload], cameras: Sequence[str], thumbnail: bool = False
    ) -> list[Seen]:
        """Decode and embed samples, each taken by a camera, '' where it is not known.

        Raises `DataError` for what cannot be decoded, `BusyError` where the queue is full, `TooLargeError`.
        """
        with self.batcher.reserve(len(uploads)):
            decoded = await self.decode(uploads, thumbnail)
            shots = [Shot(found.images, camera) for found, camera in zip(decoded, cameras, strict=True)]
            features = await self.batcher.embed(shots)
        return [Seen(u, d, f) for u, d, f in zip(uploads, decoded, features, strict=True)]

    async def decode(self, uploads: Sequence[Upload], thumbnail: bool = False) -> list[Decoded]:
        """Decode samples, within the limit of pixels."""
        loop, most = asyncio.get_running_loop(), self.settings.request.total_pixels
        decoded: list[Decoded] = []
        for upload in uploads:
            work = partial(self.decoders.decode, upload.images, thumbnail)
            decoded.append(await loop.run_in_executor(self._decoding, work))
            if sum(found.pixels for found in decoded) > most:
                raise TooLargeError(
                    f"the images have more than the {most:,} pixels allowed in one request; send smaller "
                    "ones, or fewer"
                )
        return decoded

    def query(self, seen: Sequence[Seen], pooled: bool) -> Query:
        """Samples as queries, with `pooled` as one."""
        features = np.stack([found.feature for found in seen])
        names = [f"sample {found.upload.number}" for found in seen]
        quality = [found.decoded.quality for found in seen] if pooled else None
        return join_query(self.info, features, [found.decoded.arrays for found in seen], names, quality)

    async def in_thread(self, work: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Do what takes a while without keeping others waiting."""
        return await run_in_threadpool(work, *args, **options)

    def cameras(self) -> Mapping[str, int]:
        """Camera -> its rows, by name; a few seconds old at most, a little more in a large gallery."""
        until, found = self._cameras
        now = time.monotonic()
        if now < until:
            return found
        counts = Counter(row.camera for rows in row_chunks(self.store) for row in rows)
        took = time.monotonic() - now
        found = {name: counts[name] for name in sorted(counts) if name}
        self._cameras = (now + max(_CAMERAS_KEPT, 50 * took), found)
        return found


def open_service(gallery: str, model: Path | None, settings: Settings) -> Service:
    """Open a gallery and its model (None = the one it was made with) as a service.

    Raises `GalleryError`, `ModelError` or `OtherModelError` where either is damaged or they do not belong
    together, `ConfigError` for an address that others can reach without any token.
    """
    if not settings.is_local and not TokenFile(settings.tokens).tokens():
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token: make one "
            f"with 'slimreid serve token add {gallery} --role admin', or leave --host out"
        )
    store = open_store(gallery)
    try:
        loaded = load(model or store.model.path or DEFAULT_MODEL)
        return Service(store, loaded, settings)
    except BaseException:
        store.close()
        raise
