"""What a run tells while it goes on, and the files that keep it.

`metrics.jsonl` holds only what a repeated run reproduces to the last bit: one row per update
(`kind: step`) and per epoch (`kind: epoch`). How long things took is in `timing.jsonl`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from slimreid.errors import TrainingError
from slimreid.files import write_text
from slimreid.training.checkpoint import Best
from slimreid.training.resume import METRICS_NAME, TIMING_NAME

RUN_NAME = "run.json"
UNREADABLE = "damaged ({}); it only tells how the run was started, so remove it and go on"
_PACKAGES = ("slimreid", "torch", "accelerate", "numpy", "safetensors", "pytorch-metric-learning")


@dataclass(frozen=True)
class Plan:
    """How much there is to do."""

    epochs: int
    updates: int
    """Updates in an epoch."""
    first_epoch: int = 0
    """Epochs done before, when a run goes on."""


@dataclass(frozen=True)
class StepReport:
    """One update of the weights."""

    epoch: int
    """Counts from 1."""
    step: int
    """Updates since the beginning of the run."""
    in_epoch: int
    """Updates in this epoch so far."""
    losses: dict[str, float]
    """Named losses and training accuracy, means over the batches of the update."""
    rates: dict[str, float]
    """Learning rate per parameter group."""
    images: int
    """Images seen in this update, over all processes."""
    seconds: float
    """How long it took, waiting for data included."""


@dataclass(frozen=True)
class EpochReport:
    """One epoch, and how good the model is after it."""

    epoch: int
    step: int
    losses: dict[str, float]
    """Means over the epoch."""
    rates: dict[str, float]
    figures: dict[str, dict[str, float]]
    """Part (`val`, `test`) -> mAP, rank-1, ... in [0, 1]; empty when nothing was evaluated."""
    best: Best | None
    seconds: float
    images_per_second: float


class Watcher:
    """Is told what happens in a run; every method may be left out."""

    def start(self, plan: Plan) -> None:
        """Training begins or goes on."""

    def step(self, report: StepReport) -> None:
        """The weights were updated."""

    def evaluating(self, part: str, done: int, total: int) -> None:
        """`done` of `total` batches of a part are evaluated."""

    def epoch(self, report: EpochReport) -> None:
        """An epoch is over; its checkpoint is not written yet."""

    def saved(self, folder: Path) -> None:
        """A checkpoint is on disk."""

    def close(self) -> None:
        """Nothing more will come."""


@dataclass
class MetricsFile(Watcher):
    """Writes `metrics.jsonl` and `timing.jsonl`, cut back to the checkpoint a run goes on from."""

    folder: Path
    metrics_bytes: int = 0
    """Length at the checkpoint; 0 = a new run."""
    epochs: int = 0
    """Epochs done at the checkpoint."""
    _metrics: TextIO = field(init=False)
    _timing: TextIO = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_cut(self.folder / METRICS_NAME, self.metrics_bytes)
        timing = self.folder / TIMING_NAME
        self._timing = _open_cut(timing, _length_up_to(timing, self.epochs))

    def step(self, report: StepReport) -> None:
        """One row per update."""
        row = {"kind": "step", "epoch": report.epoch, "step": report.step}
        self._write(self._metrics, {**row, "train": report.losses, "lr": report.rates})

    def epoch(self, report: EpochReport) -> None:
        """One row per epoch, on disk before its checkpoint is."""
        row = {"kind": "epoch", "epoch": report.epoch, "step": report.step}
        row |= {"train": report.losses, "lr": report.rates, **report.figures}
        row["best"] = {"epoch": report.best.epoch, "map": report.best.map} if report.best else None
        self._write(self._metrics, row)
        speed = {"seconds": report.seconds, "images_per_second": report.images_per_second}
        self._write(self._timing, {"epoch": report.epoch, **speed})
        for file in (self._metrics, self._timing):
            file.flush()
            os.fsync(file.fileno())

    @property
    def length(self) -> int:
        """Bytes of metrics written so far."""
        self._metrics.flush()
        return self._metrics.tell()

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._timing.close()

    @staticmethod
    def _write(file: TextIO, row: dict[str, Any]) -> None:
        file.write(json.dumps(row) + "\n")


def _open_cut(path: Path, length: int) -> TextIO:
    """Open a file for appending after its first `length` bytes."""
    path.touch()
    os.truncate(path, min(length, path.stat().st_size))
    return path.open("a", encoding="utf-8", newline="\n")


def _length_up_to(path: Path, epochs: int) -> int:
    """Bytes of the first `epochs` rows."""
    if not path.is_file():
        return 0
    return sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[:epochs])


class TensorBoardFiles(Watcher):
    """Curves for TensorBoard, over updates; what a killed run wrote beyond its checkpoint is hidden."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step + 1 if first_step else None)

    def step(self, report: StepReport) -> None:
        """Losses, learning rates and speed."""
        for name, value in report.losses.items():
            self._writer.add_scalar(f"train/{name}", value, report.step)
        for name, value in report.rates.items():
            self._writer.add_scalar(f"lr/{name}", value, report.step)
        self._writer.add_scalar("images_per_second", report.images / max(report.seconds, 1e-9), report.step)

    def epoch(self, report: EpochReport) -> None:
        """Figures of the evaluation."""
        for part, figures in report.figures.items():
            for name, value in figures.items():
                self._writer.add_scalar(f"{part}/{name}", value, report.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def git_commit() -> str | None:
    """Commit of the source code that runs, with `+changes` where it differs; None outside a checkout."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return f"{commit}+changes" if git("status", "--porcelain", "--", str(folder.parent)) else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _read_starts(path: Path) -> list[dict[str, Any]]:
    try:
        starts = json.loads(path.read_text(encoding="utf-8"))["starts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path}: {UNREADABLE.format(error)}") from None
    if not isinstance(starts, list):
        raise TrainingError(f"{path}: {UNREADABLE.format('no list of starts')}")
    return starts


def record_start(folder: Path, seed: int, facts: dict[str, Any], resumed_epoch: int | None) -> None:
    """Add to `run.json` how the run was started or gone on with: versions, seed, commit, machine.

    Raises `TrainingError` when the file of a run that goes on is damaged.
    """
    path = folder / RUN_NAME
    starts: list[dict[str, Any]] = []
    if resumed_epoch is not None and path.is_file():
        starts = _read_starts(path)
    starts.append(
        {
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "after_epoch": resumed_epoch or 0,
            "command": sys.argv,
            "git_commit": git_commit(),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
            "platform": platform.platform(),
            **facts,
        }
    )
    write_text(path, json.dumps({"seed": seed, "starts": starts}, indent=2, ensure_ascii=False) + "\n")
