"""Options of the commands that make runs: `quickstart`, `train`, `ablate`, `import-demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.ablation.grid import Axis, parse_axes
from slimreid.cli.options import HIDDEN, REQUIRED, Feature
from slimreid.config import Config
from slimreid.config.training import check_run
from slimreid.errors import ConfigError


@dataclass(frozen=True)
class QuickstartOptions:
    """Generate a small dataset, search it, train and evaluate three models, and write a report."""

    out: Path | None = None
    """Folder for everything; default: quickstart, or quickstart-fast with --fast. Run again to continue."""
    fast: bool = False
    """Small dataset and few epochs: checks the installation, not accuracy."""

    @property
    def folder(self) -> Path:
        """Where everything goes."""
        return self.out or Path("quickstart-fast" if self.fast else "quickstart")


@dataclass(frozen=True)
class TrainOptions:
    """Train a model, or continue a run."""

    config: Config
    out: Path = Path("runs/train")
    """Folder of the run: checkpoints, metrics, results and the final model."""
    resume: str = "never"
    """auto: continue the run in --out if there is one; never: start a new run; or the folder of the run or
    checkpoint to continue."""
    demo_config: Path | None = None
    """DeMo config (.yml); DeMo's KEY VALUE pairs may follow at the end of the command."""
    demo_options: list[str] = field(default_factory=list, metadata=HIDDEN)
    """DeMo's KEY VALUE pairs."""
    command: list[str] = field(default_factory=list, metadata=HIDDEN)
    """The words after `slimreid`, as they were typed."""

    def __post_init__(self) -> None:
        check_run(self.config, self.out)


@dataclass(frozen=True)
class ImportDemoOptions:
    """Turn a DeMo config and checkpoint into a run."""

    config: Path
    """DeMo config (.yml)."""
    checkpoint: Path
    """DeMo checkpoint (.pth)."""
    out: Path = field(metadata=REQUIRED)
    """Folder of the new run."""
    data: Path | None = None
    """Manifest to evaluate on by default."""
    set: list[str] = field(default_factory=list)
    """DeMo's KEY VALUE pairs, e.g. --set MODEL.USE_SDTPS True."""


@dataclass(frozen=True)
class AblateOptions:
    """Train every combination of some options with several seeds, and compare them."""

    config: Config
    grid: list[str] = field(default_factory=list)
    """An option and its values, e.g. model.after_backbone.keep_ratio=0.3,0.5,0.7; may be repeated."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds for each combination."""
    out: Path = Path("runs/ablation")
    """Folder for runs, results, table and plot. Run the same command again to continue: finished runs are
    kept, interrupted ones are resumed."""
    feature: Feature = "both"
    """Feature to compare by."""
    missing: Literal["none", "all"] = "none"
    """all: also evaluate every subset of the modalities, for queries and gallery."""
    skip_speed: bool = False
    """Do not measure images per second."""
    rerun: bool = False
    """Delete runs that were made with other options and train them again."""

    def __post_init__(self) -> None:
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"--seeds takes different numbers from 0 such as 0,1,2, not {list(self.seeds)}")
        _ = self.axes  # refuses what cannot be varied

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What is varied."""
        return parse_axes(self.grid)
