"""Samples that arrive together are embedded together: a bounded wait, a bounded queue."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slimreid.arrays import Floats
from slimreid.errors import SlimReIDError
from slimreid.serve.errors import BusyError


@dataclass(frozen=True)
class Shot:
    """A sample to embed."""

    images: Mapping[str, Any]
    """By modality."""
    camera: str = ""
    """Which took it; '' where it is not known."""


Embed = Callable[[Sequence[Shot]], Floats]


@dataclass(eq=False)
class _Waiting:
    """Samples of one request."""

    samples: Sequence[Shot]
    future: Future[Floats] = field(default_factory=Future)


class Batcher:
    """One thread that embeds; requests hand it samples and wait."""

    def __init__(self, embed: Embed, *, batch: int, wait: float, capacity: int) -> None:
        self._embed = embed
        self._batch, self._wait = batch, wait
        self.capacity = capacity
        self.reserved = 0
        """Samples of requests under way, from before they are decoded until they are embedded."""
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="embed", daemon=True)
        self._thread.start()

    @contextmanager
    def reserve(self, samples: int) -> Iterator[None]:
        """Room in the queue for a request; raises `BusyError` where there is none."""
        with self._lock:
            # Whoever finds the queue empty is let in, however many samples they bring.
            if self.reserved and self.reserved + samples > self.capacity:
                raise BusyError(f"{self.reserved} samples are waiting; try again later")
            self.reserved += samples
        try:
            yield
        finally:
            with self._lock:
                self.reserved -= samples

    async def embed(self, samples: Sequence[Shot]) -> Floats:
        """Features (B, D) of samples; raises what the model raises."""
        waiting = _Waiting(samples)
        self._queue.put(waiting)
        return await asyncio.wrap_future(waiting.future)

    def stop(self) -> None:
        """Embed what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            together, ended = self._gather(first)
            self._work([item for item in together if item.future.set_running_or_notify_cancel()])
            if ended:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        """The first request and those that come soon after, and whether the end has come."""
        together, count = [first], len(first.samples)
        until = time.monotonic() + self._wait
        while count < self._batch:
            try:
                item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if item is None:
                return together, True
            together.append(item)
            count += len(item.samples)
        return together, False

    def _work(self, together: Sequence[_Waiting]) -> None:
        if not together:
            return
        try:
            found = self._embed([sample for item in together for sample in item.samples])
        except SlimReIDError as error:
            if len(together) == 1:
                together[0].future.set_exception(error)
                return
            for item in together:  # a sample that does not fit is the mistake of one request alone
                self._work([item])
            return
        except BaseException as error:
            for item in together:
                item.future.set_exception(error)
            return
        ends = np.cumsum([len(item.samples) for item in together])
        for item, part in zip(together, np.split(found, ends[:-1]), strict=True):
            item.future.set_result(part)
