"""What goes between the service and a process that decodes: lengths, JSON and bytes.

No pickle comes back: whoever takes over a decoder with a crafted image cannot make the service run anything.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
_TYPES = ("uint8", "uint16", "int32", "float32")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, eq=False)
class Decoded:
    """The images of one sample, decoded and judged."""

    arrays: Mapping[str, Array]
    """Per modality: (H, W, 3) uint8, or (H, W) of more bits."""
    quality: float
    reasons: tuple[str, ...]
    thumbnail: bytes
    """JPEG; empty where none was asked for."""

    @property
    def images(self) -> dict[str, Array | Image.Image]:
        """As `embed` takes them; deep values as images, so that they are mapped as those of files are."""
        return {n: a if a.ndim == 3 else Image.fromarray(a) for n, a in self.arrays.items()}

    @property
    def pixels(self) -> int:
        """Of all images."""
        return sum(array.shape[0] * array.shape[1] for array in self.arrays.values())


def pack(header: Mapping[str, Any], blobs: Sequence[bytes | memoryview]) -> bytes:
    """A header and some blobs as one message."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *blobs])


def unpack(message: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    """What `pack` packed; raises `ValueError` for anything else."""
    if len(message) < _LENGTH.size:
        raise ValueError("too short")
    (length,) = _LENGTH.unpack_from(message)
    header = json.loads(message[_LENGTH.size : _LENGTH.size + length])
    view, at, blobs = memoryview(message), _LENGTH.size + length, []
    for size in header["sizes"]:
        if not isinstance(size, int) or size < 0 or at + size > len(message):
            raise ValueError("wrong sizes")
        blobs.append(view[at : at + size])
        at += size
    return header, blobs


def pack_decoded(decoded: Decoded) -> bytes:
    """A decoded sample as one message."""
    arrays = {name: np.ascontiguousarray(array) for name, array in decoded.arrays.items()}
    header = {
        "arrays": [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()],
        "quality": decoded.quality,
        "reasons": list(decoded.reasons),
    }
    return pack(header, [decoded.thumbnail, *(a.tobytes() for a in arrays.values())])


def unpack_decoded(message: bytes) -> Decoded | str:
    """A decoded sample, or why it could not be decoded; raises `ValueError` for anything else."""
    try:
        header, blobs = unpack(message)
        if "error" in header:
            return str(header["error"])
        arrays = {}
        for (name, kind, shape), blob in zip(header["arrays"], blobs[1:], strict=True):
            if kind not in _TYPES:
                raise ValueError("wrong type")
            arrays[str(name)] = np.frombuffer(blob, kind).reshape(shape)
        reasons = tuple(str(reason) for reason in header["reasons"])
        return Decoded(arrays, float(header["quality"]), reasons, bytes(blobs[0]))
    except (KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
