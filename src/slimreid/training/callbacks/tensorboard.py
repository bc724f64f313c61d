"""Curves for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from slimreid.training.callbacks.base import Callback, EpochReport, StepReport


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
