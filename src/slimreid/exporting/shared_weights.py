"""Several ONNX graphs over one file of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

from slimreid.errors import ModelError

WEIGHTS_NAME = "weights.bin"
_LEAST_BYTES = 256
"""Smaller constants stay in the graphs."""
_PAGE = 4096
"""Bytes at a multiple of which weights begin, so that they can be mapped into memory."""


def write_graphs(
    folder: Path,
    graphs: Iterable[tuple[str, onnx.ModelProto]],
    align: int = _PAGE,
    weights: str = WEIGHTS_NAME,
) -> None:
    """Write graphs, one after the other; constants of the same content are written once for all of them.

    The constants are taken out of the graphs. `align`: weights begin at a multiple of this. `weights`: the
    name of their file, which every constant of every graph repeats.
    """
    places: dict[bytes, int] = {}
    with (folder / weights).open("wb") as file:
        for name, proto in graphs:
            for tensor in proto.graph.initializer:
                content = tensor.raw_data
                if len(content) < _LEAST_BYTES:
                    continue
                digest = hashlib.sha256(content).digest()
                if digest not in places:
                    file.write(b"\0" * (-file.tell() % align))
                    places[digest] = file.tell()
                    file.write(content)
                set_external_data(tensor, weights, places[digest], len(content))
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
            (folder / name).write_bytes(proto.SerializeToString(deterministic=True))


def read_graph(folder: Path, name: str) -> onnx.ModelProto:
    """A graph with its weights; raises `ModelError` where it cannot be read."""
    try:
        proto: onnx.ModelProto = onnx.load(folder / name)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / name}: not a readable graph ({error})") from None
    return proto
