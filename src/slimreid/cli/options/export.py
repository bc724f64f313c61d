"""Options of the commands that make a model of another: `export`, `adapt`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import REQUIRED, Split
from slimreid.config.values import check_least


@dataclass(frozen=True)
class ExportOptions:
    """Export a trained model to ONNX, checked against the original; it runs without torch."""

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


@dataclass(frozen=True)
class AdaptOptions:
    """Adapt a model to the cameras of a site with images that nobody has labelled."""

    model: Path
    """Folder of a run or checkpoint, a model file, the folder of an exported model, or the name of one that
    ships."""
    images: Path
    """Manifest with the cameras of the site, or a folder of images; no identities are needed. Keep images
    that the model will be evaluated on out of it."""
    out: Path = field(metadata=REQUIRED)
    """Model to write: a file or folder; of an exported model a folder."""
    split: Split | None = None
    """Use the rows of this split only."""
    modality: str | None = None
    """In a folder without manifest: modality of images whose path does not name one."""
    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one. Exported models run on the CPU."""
    batch: int | None = None
    """Samples per batch; default: as in training."""
    workers: int | None = None
    """Threads that load images; default: as in training."""
    skip_broken: bool = False
    """Leave out samples whose files cannot be read, instead of stopping."""
    overwrite: bool = False
    """Replace a model that is there."""

    def __post_init__(self) -> None:
        check_least(self, 1, "batch")
        check_least(self, 0, "workers")
