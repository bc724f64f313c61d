"""Graphs of models that were traced before: tracing is what takes the time of an export."""

from __future__ import annotations

import fcntl
import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

Trace = Callable[[nn.Module, tuple[str, ...]], onnx.ModelProto]


def remembering(trace: Trace, folder: Path) -> Trace:
    """The same function, which keeps what it made in `folder`, by all that the model consists of."""
    folder.mkdir(exist_ok=True)

    def traced(model: nn.Module, subset: tuple[str, ...]) -> onnx.ModelProto:
        key = digest((model.eval(), subset))
        path = folder / f"{key}.onnx"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be tracing it
            if not path.is_file():
                part = path.with_suffix(".part")
                onnx.save(trace(model, subset), part)
                part.replace(path)
        return onnx.load(path)

    return traced


def digest(value: object) -> str:
    """SHA-256 of all that a value consists of; torch's own pickling has addresses in it."""
    stream = io.BytesIO()
    _ByContent(stream).dump(value)
    return hashlib.sha256(stream.getvalue()).hexdigest()


class _ByContent(pickle.Pickler):
    def persistent_id(self, value: Any) -> object:
        if not isinstance(value, torch.Tensor):
            return None
        array = value.detach().numpy()
        return str(value.dtype), array.shape, hashlib.sha256(array.tobytes()).digest()
