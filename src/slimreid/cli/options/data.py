"""Options of `slimreid data ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import JsonOption, Protocol, Split
from slimreid.config import Config, synthetic
from slimreid.config.values import check_least
from slimreid.errors import ConfigError


@dataclass(frozen=True)
class SynthOptions:
    """Generate a synthetic rgb/nir/tir dataset."""

    out: Path
    """New folder; gets the layout of RGBNT201, manifest.csv and the true object masks."""
    identities: int = 64
    """Number of people or vehicles."""
    cameras: int = 4
    """Number of cameras, each with its own background, colours and gain."""
    images_per_camera: int = 3
    """Images of each identity from each camera."""
    size: str | None = None
    """Height x width in pixels; default: 128x64 for people, 64x128 for vehicles."""
    seed: int = 0
    """The same seed gives the same files, byte for byte."""
    objects: Literal["people", "vehicles"] = "people"
    """What to draw."""
    difficulty: float = 0.5
    """From 0 (clean images) to 1 (strong clutter, noise and lighting changes)."""
    val_identities: float = 0.1
    """Share of the training identities held out for validation; 0 = none."""
    workers: int | None = None
    """Number of processes; default: one per core."""

    def __post_init__(self) -> None:
        _ = self.world  # refuses what is out of range

    @property
    def world(self) -> synthetic.SynthOptions:
        """What to generate."""
        return synthetic.SynthOptions(
            identities=self.identities,
            cameras=self.cameras,
            images_per_camera=self.images_per_camera,
            size=self.pixels,
            seed=self.seed,
            objects=self.objects,
            difficulty=self.difficulty,
        )

    @property
    def pixels(self) -> tuple[int, int] | None:
        """`size` as (height, width)."""
        if self.size is None:
            return None
        height, _, width = self.size.lower().partition("x")
        if not (height.isdecimal() and width.isdecimal() and len(self.size) < 20):
            raise ConfigError(f"--size must be HEIGHTxWIDTH, for example 128x64, not '{self.size}'")
        return int(height), int(width)


@dataclass(frozen=True)
class ImportOptions:
    """Read a dataset folder into a manifest."""

    source: Path
    """Folder of the dataset."""
    layout: str = "auto"
    """rgbnt201, rgbnt100, msvr310, wmveid863, market1501, folder, identities, or auto to detect it."""
    out: Path | None = None
    """Manifest to write; default: manifest.csv in the source folder."""
    template: str | None = None
    """Path pattern for layout folder, e.g. '{split}/{identity}/{modality}_{camera}_{}'."""
    modalities: tuple[str, ...] | None = None
    """Modalities to import, e.g. rgb,tir; new names are allowed."""
    val_identities: float = 0.1
    """Share of the training identities held out for validation; 0 = none."""
    train_identities: str | None = None
    """For a source without splits: ranges of sorted identities to train on, e.g. 0:150 or 0:600,700:751."""
    test_identities: str | None = None
    """For a source without splits: ranges of sorted identities to test on, e.g. 600:700."""
    query_every: int = 3
    """With --test-identities: every n-th test image becomes a query."""
    split: Split | None = None
    """For a source without splits: put everything into this split; default: train."""
    camera_map: list[str] = field(default_factory=list)
    """Names for the cameras that paths give as numbers, e.g. 1,2=A 3,4=B."""
    overwrite: bool = False
    """Replace a manifest that exists and is different."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(JsonOption):
    """Check a manifest and its files; exit code 1 if there are errors."""

    data: Path
    """Manifest, or a folder with manifest.csv."""
    protocol: Protocol | None = None
    """Which gallery images a query ignores (same identity and camera, or scene); default: the manifest's."""
    modalities: tuple[str, ...] | None = None
    """Image columns to use, e.g. rgb,depth; default: all."""


@dataclass(frozen=True)
class SimulateOptions:
    """Simulate nir and tir images for an rgb dataset."""

    data: Path
    """Manifest of an rgb dataset, or its folder."""
    out: Path = Path("simulated")
    """New folder for the images and their manifest."""
    seed: int = 0
    """The same seed gives the same files, byte for byte."""
    workers: int | None = None
    """Number of processes; default: one per core."""


@dataclass(frozen=True)
class SheetOptions:
    """Draw samples of a few identities, each from several cameras, in one picture."""

    data: Path
    """Manifest, or a folder with manifest.csv."""
    out: Path = Path("sheet.png")
    """Picture (.png, .jpg) or page (.html) to write."""
    split: Split | None = None
    """Show this split only."""
    identities: int = 6
    """Number of identities."""
    images: int = 4
    """Samples of each identity."""
    seed: int = 0
    """Chooses the identities and samples."""
    modalities: tuple[str, ...] | None = None
    """Image columns to show, e.g. rgb,depth; default: all."""

    def __post_init__(self) -> None:
        check_least(self, 1, "identities", "images")
        check_least(self, 0, "seed")


@dataclass(frozen=True)
class PreviewOptions:
    """Draw training batches as the model will see them."""

    config: Config
    out: Path = Path("runs/preview")
    """Folder for the pictures and the resolved config."""
    batches: int = 1
    """Number of batches to draw."""

    def __post_init__(self) -> None:
        check_least(self, 1, "batches")
