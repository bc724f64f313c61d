"""Options of `slimreid export`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import REQUIRED
from slimreid.errors import ConfigError


@dataclass(frozen=True)
class ExportOptions:
    """Options of `slimreid export`."""

    model: Path
    """Folder of a run or checkpoint, or a model file."""
    out: Path = field(metadata=REQUIRED)
    """Folder to write: graphs, weights, model.json and a model card."""
    precision: Literal["float32", "int8"] = "float32"
    """Numbers of the linear layers; int8 is faster and a quarter of the size."""
    calibrate: Path | None = None
    """Manifest of samples to check the exported model on; default: the test split of the run's data."""
    max_loss: float = 0.5
    """Points of mAP that the exported model may lose; with int8, layers stay float32 until it holds."""
    force: bool = False
    """Write the folder even if the exported model fails its check; its model card says so."""
    overwrite: bool = False
    """Replace an exported model that is there."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss <= 100:
            raise ConfigError(f"--max-loss takes points of mAP from 0 to 100, not {self.max_loss:g}")
