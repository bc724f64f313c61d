"""Options of the commands that make a model of another: `export`, `adapt`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import REQUIRED, BatchOptions, DeviceOption, ModelOption, Split


@dataclass(frozen=True)
class ExportOptions:
    """Export a trained model to ONNX, checked against the original; it runs without torch."""

    model: Path
    """A run, checkpoint or model file; not an exported model."""
    out: Path = field(metadata=REQUIRED)
    """Folder to write: graphs, weights, model.json and a model card."""
    precision: Literal["float32", "int8"] = "float32"
    """Precision of the linear layers; int8 is faster and a quarter of the size."""
    data: Path | None = None
    """Manifest of samples to check the exported model on; default: the test split of the run's data."""
    max_loss: float = 0.5
    """Points of mAP that the exported model may lose; in int8, layers stay float32 until it loses less."""
    force: bool = False
    """Write the folder even if the exported model fails its check; its model card says so."""
    overwrite: bool = False
    """Replace an exported model that exists."""


@dataclass(frozen=True, kw_only=True)
class AdaptOptions(BatchOptions, DeviceOption, ModelOption):
    """Adapt a model to the cameras of a site with unlabelled images."""

    model: Path
    images: Path
    """Manifest with the cameras of the site, or a folder of images; no identities are needed. Do not include
    images used for evaluation."""
    out: Path = field(metadata=REQUIRED)
    """Model to write: a file or folder; for an exported model a folder."""
    split: Split | None = None
    """Use the rows of this split only."""
    modality: str | None = None
    """In a folder without manifest: modality of images whose path names none."""
    overwrite: bool = False
    """Replace a model that exists."""
