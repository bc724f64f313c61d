"""Several ONNX graphs over one file of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import onnx
from onnx.external_data_helper import set_external_data

from slimreid.errors import ModelError

WEIGHTS_NAME = "weights.bin"
_LEAST_BYTES = 256
"""Smaller constants stay in the graphs."""
_PAGE = 4096
"""Bytes at a multiple of which weights begin, so that they can be mapped into memory."""


class SharedWeights:
    """Writes graphs of a folder; constants of the same content are written once for all of them.

    Use it as a context: the weights are complete when it ends. `align`: weights begin at a multiple of this.
    """

    def __init__(self, folder: Path, align: int = _PAGE) -> None:
        self.folder = folder
        self._align = align
        self._file = (folder / WEIGHTS_NAME).open("wb")
        self._places: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> SharedWeights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, proto: onnx.ModelProto, name: str) -> None:
        """Write a graph as the file `name`; the constants are taken out of `proto`."""
        for tensor in proto.graph.initializer:
            if len(tensor.raw_data) >= _LEAST_BYTES:
                offset, length = self._place(tensor.raw_data)
                set_external_data(tensor, WEIGHTS_NAME, offset, length)
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
        (self.folder / name).write_bytes(proto.SerializeToString(deterministic=True))

    def _place(self, content: bytes) -> tuple[int, int]:
        """Where in the file some bytes are, written now if they are new."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._places:
            self._file.write(b"\0" * (-self._file.tell() % self._align))
            self._places[digest] = self._file.tell(), len(content)
            self._file.write(content)
        return self._places[digest]


def write_graphs(folder: Path, graphs: Iterable[tuple[str, onnx.ModelProto]]) -> None:
    """Write graphs, one after the other, over one file of weights."""
    with SharedWeights(folder) as weights:
        for name, proto in graphs:
            weights.write(proto, name)


def read_graph(folder: Path, name: str) -> onnx.ModelProto:
    """A graph with its weights; raises `ModelError` where it cannot be read."""
    try:
        proto: onnx.ModelProto = onnx.load(folder / name)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / name}: not a readable graph ({error})") from None
    return proto
