"""The files that grow with a run.

`metrics.jsonl` holds only what a repeated run reproduces to the last bit: one row per update
(`kind: step`) and per epoch (`kind: epoch`). How long things took is in `timing.jsonl`; curves for
TensorBoard have a folder of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from torch.utils.tensorboard import SummaryWriter

from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import Callback, EpochReport, StepReport
from slimreid.training.checkpoint.state import FileMark


class MetricsFile(Callback):
    """Writes `metrics.jsonl` and `timing.jsonl`, cut back to the checkpoint a run goes on from."""

    def __init__(self, run: RunFolder, metrics_bytes: int = 0, epochs: int = 0) -> None:
        """`metrics_bytes` and `epochs`: length and epochs done at the checkpoint; 0 = a new run."""
        run.path.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_cut(run.metrics_file, metrics_bytes)
        self._timing = _open_cut(run.timing_file, _length_up_to(run.timing_file, epochs))
        self._digest = hashlib.sha256(run.metrics_file.read_bytes())

    def step(self, report: StepReport) -> None:
        """One row per update."""
        row = {"kind": "step", "epoch": report.epoch, "step": report.step}
        self._write({**row, "train": report.losses, "lr": report.rates})

    def epoch(self, report: EpochReport) -> None:
        """One row per epoch, on disk before its checkpoint is."""
        row = {"kind": "epoch", "epoch": report.epoch, "step": report.step}
        row |= {"train": report.losses, "lr": report.rates, **report.figures}
        row["best"] = {"epoch": report.best.epoch, "map": report.best.map} if report.best else None
        self._write(row)
        speed = {"seconds": report.seconds, "images_per_second": report.images_per_second}
        self._timing.write(_line({"epoch": report.epoch, **speed}))
        for file in (self._metrics, self._timing):
            file.flush()
            os.fsync(file.fileno())

    @property
    def mark(self) -> FileMark:
        """Length and checksum of the metrics written so far."""
        self._metrics.flush()
        return FileMark(self._metrics.tell(), self._digest.hexdigest())

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._timing.close()

    def _write(self, row: dict[str, Any]) -> None:
        line = _line(row)
        self._metrics.write(line)
        self._digest.update(line)


def _line(row: dict[str, Any]) -> bytes:
    return f"{json.dumps(row)}\n".encode()


def _open_cut(path: Path, length: int) -> BinaryIO:
    """Open a file for appending after its first `length` bytes."""
    path.touch()
    os.truncate(path, min(length, path.stat().st_size))
    return path.open("ab")


def _length_up_to(path: Path, epochs: int) -> int:
    """Bytes of the first `epochs` rows."""
    if not path.is_file():
        return 0
    return sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[:epochs])


class TensorBoardFiles(Callback):
    """Curves for TensorBoard, over updates; what a killed run wrote beyond its checkpoint is hidden."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
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
