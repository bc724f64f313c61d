"""Some processes that decode; one that dies, hangs or takes too much memory is replaced."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from slimreid.errors import DataError
from slimreid.serve.decoding.messages import Decoded, pack, unpack_decoded
from slimreid.serve.decoding.worker import run_worker
from slimreid.serve.errors import BusyError
from slimreid.serve.settings import RequestLimits

# A fresh process shares no memory and no open files with the service.
_processes = multiprocessing.get_context("spawn")


class Decoder:
    """One process and the way to it."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None and self._process.is_alive():
            return
        self.stop()
        ours, theirs = _processes.Pipe()
        self._process = _processes.Process(target=run_worker, args=(theirs, self._memory), daemon=True)
        self._process.start()
        theirs.close()
        self._connection = ours

    def ask(self, message: bytes, seconds: float) -> bytes | None:
        """The answer of the process, None where it died or took too long; it is gone then."""
        self.start()
        assert self._connection is not None
        try:
            self._connection.send_bytes(message)
            if self._connection.poll(seconds):
                return self._connection.recv_bytes()
        except (EOFError, OSError):
            pass
        self.stop()
        return None

    def stop(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


class DecodePool:
    """Processes that decode; threads may share it."""

    def __init__(self, processes: int, limits: RequestLimits) -> None:
        self._limits = limits
        self.size = processes
        self.deaths = 0
        """Processes that had to be replaced."""
        self._decoders = [Decoder(limits.decode_bytes) for _ in range(processes)]
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def start(self) -> None:
        """Start all processes, so that the first request need not wait for them."""
        for decoder in self._decoders:
            decoder.start()

    def decode(self, contents: Mapping[str, bytes], thumbnail: bool = False) -> Decoded:
        """Decode the images {modality: file} of one sample.

        Raises `DataError` for images that cannot be decoded, or that the process died of, and `BusyError`
        where no process becomes free in time.
        """
        header = {"names": list(contents), "pixels": self._limits.pixels, "thumbnail": thumbnail}
        message = pack(header, list(contents.values()))
        began = time.monotonic()
        try:
            decoder = self._idle.get(timeout=self._limits.seconds)
        except queue.Empty:
            raise BusyError("too many images are being decoded; try again later") from None
        try:
            answer = decoder.ask(message, self._limits.decode_seconds)
            found = unpack_decoded(answer) if answer is not None else None
        except ValueError:
            decoder.stop()  # what answers like this is no longer ours
            found = None
        finally:
            self._idle.put(decoder)
        if found is None:
            self.deaths += 1
            spent = time.monotonic() - began
            raise DataError(
                f"the images could not be decoded: the process that tried ended after {spent:.1f} s; "
                f"save them again as PNG or JPEG"
            )
        if isinstance(found, str):
            raise DataError(found)
        return found

    def stop(self) -> None:
        """End all processes."""
        for decoder in self._decoders:
            decoder.stop()
