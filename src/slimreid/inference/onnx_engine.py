"""Runs an exported model with onnxruntime: images in, features out. Needs no torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from slimreid.arrays import Floats, Ints
from slimreid.errors import ConfigError, ModelError
from slimreid.files import file_digest
from slimreid.inference.exported_card import ADAPTATION_NAME, README_NAME, read_exported
from slimreid.inference.model_card import card_path
from slimreid.inference.similarity import Subset
from slimreid.threads import usable_threads

CAMERA = "camera"
"""Input of a graph that takes cameras."""
PRIVATE_BYTES = 2**30
"""Memory that weights may take, all graphs together, rearranged for speed."""


class OnnxEngine:
    """The graphs of an exported model, one per subset of its modalities, opened when first needed.

    Safe to call from several threads.

    Args:
        folder: The folder that `slimreid export` wrote, or a card in it; it is only read.
        threads: Threads of one call; None = as many as `OMP_NUM_THREADS` says, else the share of the cores
            that this process has (see `usable_threads`). Give 1 where several threads call.
        private_bytes: Memory that weights may take beside their file. onnxruntime copies the weights of each
            graph into an order that suits the processor; graphs that are opened when this memory is used up
            read the file instead, which all graphs and processes share, and are slower.

    Raises:
        ModelError: where `model.json` is missing or damaged.
    """

    def __init__(
        self, folder: Path | str, threads: int | None = None, private_bytes: int = PRIVATE_BYTES
    ) -> None:
        self.path = card_path(folder)
        self.folder = self.path.parent
        self.card = read_exported(self.path)
        self.threads = usable_threads() if threads is None else threads
        if self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {threads}")
        self.private_bytes = private_bytes
        self._sessions: dict[Subset, Any] = {}
        self._intact: set[str] = set()
        self._lock = threading.Lock()

    @property
    def weight_bytes(self) -> int:
        """Bytes of the file of weights, which the graphs share; raises `OSError` where it is gone."""
        other = (".onnx", README_NAME, ADAPTATION_NAME)
        return sum((self.folder / n).stat().st_size for n in self.card.files if not n.endswith(other))

    def features(self, images: Mapping[str, Floats], cameras: Ints | None = None) -> dict[str, Floats]:
        """Features {kind: (B, D)}, as the model gives them, of B samples that have exactly these modalities.

        images {modality: float32 (B, 3, H, W)}, preprocessed; cameras int64 (B,), −1 for one that is not
        known (None = none is known). Raises `ModelError` for a modality, type or shape that does not fit, or
        for a file of the folder that is missing or altered.
        """
        return self.run(images, cameras, tuple(self.card.sizes))

    def kept_patches(self, images: Mapping[str, Floats], cameras: Ints | None = None) -> dict[str, Ints]:
        """Numbers (B, M, K) of the kept patches at every stage of token reduction, best score first.

        Zeros for modalities that are not given.
        """
        return self.run(images, cameras, self.card.stages)

    def run(
        self, images: Mapping[str, Floats], cameras: Ints | None, outputs: Sequence[str]
    ) -> dict[str, Any]:
        """Some outputs of the graph of the modalities given."""
        inputs = self._inputs(images, cameras)
        session = self._session(tuple(name for name in self.card.modalities if name in images))
        found = session.run(list(outputs), inputs)
        return dict(zip(outputs, found, strict=True))

    def _inputs(self, images: Mapping[str, Floats], cameras: Ints | None) -> dict[str, NDArray[Any]]:
        """What a graph is given; raises `ModelError` where images or cameras do not fit."""
        unknown = [name for name in images if name not in self.card.modalities]
        if unknown or not images:
            known = ", ".join(self.card.modalities)
            raise ModelError(f"images of {unknown or 'nothing'}; the model knows {known}")
        B = len(next(iter(images.values())))
        shape = (B, 3, *self.card.model.config.transforms.size)
        for name, image in images.items():
            if image.shape != shape or image.dtype != np.float32:
                raise ModelError(
                    f"images of '{name}' must be float32 {shape}, not {image.dtype} {image.shape}"
                )
        inputs: dict[str, NDArray[Any]] = dict(images)
        if self.card.camera_input:
            cameras = np.full(B, -1, np.int64) if cameras is None else cameras
            if cameras.shape != (B,) or cameras.dtype != np.int64:
                raise ModelError(f"cameras must be int64 ({B},), not {cameras.dtype} {cameras.shape}")
            inputs[CAMERA] = cameras
        return inputs

    def _session(self, subset: Subset) -> Any:
        """The session of a subset's graph, opened once."""
        with self._lock:
            if subset not in self._sessions:
                self._sessions[subset] = self._open(self.card.graphs[subset])
            return self._sessions[subset]

    def _open(self, graph: str) -> Any:
        for name in self.card.files:
            if name == graph or not name.endswith(".onnx"):  # weights are shared: all graphs need them
                self._check_file(name)
        path = self.folder / graph
        private = (len(self._sessions) + 1) * self.weight_bytes <= self.private_bytes
        try:
            return onnxruntime.InferenceSession(
                str(path), session_options(self.threads, private), providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has no base class of its own errors
            raise ModelError(
                f"{path}: onnxruntime {onnxruntime.__version__} cannot open it "
                f"({str(error).splitlines()[0]}); update onnxruntime, or export the model again"
            ) from None

    def _check_file(self, name: str) -> None:
        """Raise `ModelError` unless a file of the folder is as it was written; once per file."""
        if name in self._intact:
            return
        path = self.folder / name
        try:
            found = file_digest(path)
        except OSError as error:
            reason = error.strerror or error
            raise ModelError(f"{path}: cannot be read ({reason}); copy the whole folder again") from None
        if found != self.card.files[name]:
            raise ModelError(f"{path}: not as it was exported; copy the folder again, or export it again")
        self._intact.add(name)


def session_options(threads: int, private: bool = True) -> Any:
    """How a graph is run: by so many threads, which sleep while there is nothing to do.

    `private`: whether it may copy its weights into an order that suits the processor.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not private:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options
