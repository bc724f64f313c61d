"""The folder of a run: what its files are called, what they say, and the lock of whoever trains in it.

config.yaml                 all options, resolved
run.json                    how it was started: commands, versions, machine
metrics.jsonl               one row per update and per epoch, the same to the last bit in a repeated run
timing.jsonl                seconds of each epoch
selection.jsonl             which patches were kept (train.watch_selection)
tensorboard/                the curves
checkpoints/                to resume from, see `slimreid.training.checkpoint`
model.safetensors           the chosen checkpoint, to share
result.json                 its figures on the test set
log.txt                     what the commands of an ablation printed
evaluation*/                what `slimreid evaluate` measured, and the features it kept
"""

from __future__ import annotations

import os
import socket
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.config.files import CONFIG_NAME, load_config
from slimreid.errors import TrainingError
from slimreid.inference.model_card import MODEL_NAME
from slimreid.runs.history import EpochTime, read_metrics, read_selection, read_timing
from slimreid.runs.starts import Start, read_starts

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]


LOCK_NAME = ".lock"


class RunFolder:
    """A run by its folder, see above; every reader raises an error naming the file when that is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / CONFIG_NAME
        self.starts_file = path / "run.json"
        self.metrics_file = path / "metrics.jsonl"
        self.timing_file = path / "timing.jsonl"
        self.selection_file = path / "selection.jsonl"
        self.result_file = path / "result.json"
        self.model_file = path / MODEL_NAME
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.log_file = path / "log.txt"

    @classmethod
    def of_model(cls, model: Path) -> RunFolder:
        """The run that a model file lies in."""
        return cls(model.parent)

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return self.result_file.is_file() and self.model_file.is_file()

    def config(self) -> Config | None:
        """The options of the run; None for a model without its run. Raises `ConfigError`."""
        return load_config([self.config_file]) if self.config_file.is_file() else None

    def starts(self) -> tuple[Start, ...]:
        """How the run was started and resumed, first to last; none for a model without its run."""
        return read_starts(self.starts_file)

    def metrics(self) -> tuple[Mapping[str, Any], ...]:
        """Rows of `metrics.jsonl`, see `read_metrics`."""
        return read_metrics(self.metrics_file)

    def timing(self) -> tuple[EpochTime, ...]:
        """How long the epochs that are done took."""
        return read_timing(self.timing_file)

    def selection(self) -> tuple[Mapping[str, Any], ...]:
        """Rows of `selection.jsonl`, see `read_selection`; none where it was not watched."""
        return read_selection(self.selection_file)

    @property
    def epochs_done(self) -> int:
        """Epochs that are done, as far as `timing.jsonl` tells."""
        return len(self.timing())

    @property
    def train_seconds(self) -> float:
        """Seconds of all epochs, evaluations included."""
        return sum(epoch.seconds for epoch in self.timing())

    @property
    def images_per_second(self) -> float | None:
        """While training, the median over epochs; None before the first."""
        return statistics.median(e.images_per_second for e in timing) if (timing := self.timing()) else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in `folder` within the block; it is made if it is not there.

    The lock belongs to this process alone: the kernel releases it when the process dies, and processes that
    load images do not inherit it. A folder that stays empty is removed again. Raises `TrainingError` naming
    the process that holds the lock.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _acquire(folder)
    try:
        yield
    finally:
        (folder / LOCK_NAME).unlink(missing_ok=True)  # before it is released, so nobody waits for a dead file
        os.close(handle)
        if made:
            with suppress(OSError):  # it holds something by now
                folder.rmdir()


def _acquire(folder: Path) -> int:
    path = folder / LOCK_NAME
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(handle, path):  # its holder ended, and removed it, between our two calls
                os.close(handle)
                continue
        except OSError:
            holder = os.read(handle, 200).decode("utf-8", "replace").strip()
            os.close(handle)
            raise TrainingError(
                f"{folder}: {holder or 'another process'} is training in this folder; wait for it, stop it, "
                "or choose another --out"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return handle


def _is_at(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
