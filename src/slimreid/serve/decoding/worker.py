"""A process that decodes images for the service: little memory, no way to outlive it."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection

from slimreid.data.images.decode import decode_bytes
from slimreid.data.images.pixels import as_pixels
from slimreid.errors import DataError
from slimreid.gallery.decisions.quality import sample_quality
from slimreid.gallery.enrolment.images import make_thumbnail
from slimreid.serve.decoding.messages import Decoded, pack, pack_decoded, unpack

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


def run_worker(connection: Connection, memory: int) -> None:
    """Decode what comes through a connection until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    if resource is not None and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it has nothing to write
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            answer = _answer(message)
        except MemoryError:
            answer = pack({"error": "the images need more memory than is allowed"}, [])
        connection.send_bytes(answer)


def _answer(message: bytes) -> bytes:
    header, blobs = unpack(message)
    contents = {name: bytes(blob) for name, blob in zip(header["names"], blobs, strict=True)}
    try:
        return pack_decoded(decode_sample(contents, header["pixels"], header["thumbnail"]))
    except DataError as error:
        return pack({"error": str(error)}, [])


def decode_sample(contents: Mapping[str, bytes], pixels: int, thumbnail: bool) -> Decoded:
    """Decode and judge the images {modality: file} of a sample; raises `DataError` naming the modality.

    `pixels`: the most that one image may have; it is looked at before anything is decoded.
    """
    arrays = {name: decode_bytes(content, name, pixels) for name, content in contents.items()}
    shown = {
        name: array if array.ndim == 3 else as_pixels(Decoded({name: array}, 0, (), b"").images[name])
        for name, array in arrays.items()
    }
    quality = sample_quality(shown)
    return Decoded(arrays, quality.value, quality.reasons, make_thumbnail(shown) if thumbnail else b"")
