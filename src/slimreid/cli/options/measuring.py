"""Options of the commands that measure: `evaluate`, `compare`, `report`, `profile`, `model ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import (
    NOTE,
    BatchOptions,
    CameraOption,
    DeviceOption,
    Feature,
    JsonOption,
    ModelOption,
    Protocol,
)
from slimreid.config import Config
from slimreid.config.values import check_least
from slimreid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(BatchOptions, DeviceOption, CameraOption, ModelOption):
    """Evaluate retrieval with a trained model."""

    model: Path = field(metadata={NOTE: "Or a folder of embeddings ('slimreid embed --out FOLDER')."})
    data: Path | None = None
    """Manifest, or a folder with manifest.csv; default: the data of the run."""
    feature: Literal["original", "slimmed", "fused", "both", "all"] = "all"
    """Feature to search by: one branch of the model, both together, or all of these in turn."""
    missing: Literal["none", "all"] = "none"
    """all: also evaluate every subset of the modalities, for queries and gallery."""
    rerank: bool = False
    """Also report results with k-reciprocal re-ranking."""
    rerank_k1: int | None = None
    """k1 of k-reciprocal re-ranking; default: 20."""
    rerank_k2: int | None = None
    """k2 of k-reciprocal re-ranking (local query expansion); default: 6."""
    rerank_lambda: float | None = None
    """Weight of the original distance in re-ranking, 0 to 1; default: 0.3."""
    threshold: list[str] = field(default_factory=list)
    """Report true and false match rates at these thresholds: scores (1.3, or rt=1.3 for samples in rgb and
    tir), or another evaluation of this model (runs/first/evaluation), whose thresholds are taken."""
    protocol: Protocol | None = None
    """Which gallery images a query ignores (same identity and camera, or scene); default: the manifest's."""
    split: Literal["test", "val"] = "test"
    """test: search the queries in the gallery; val: search each validation sample among the others."""
    out: Path | None = None
    """Folder for results and features; default: evaluation in the folder of the run."""
    no_cache: bool = False
    """Extract the features again and do not store them."""
    memory: int = 1024
    """For a folder of embeddings: megabytes of scores in memory at a time."""

    def __post_init__(self) -> None:
        given = (self.rerank_k1, self.rerank_k2, self.rerank_lambda)
        if not self.rerank and any(value is not None for value in given):
            raise ConfigError("--rerank-k1, --rerank-k2 and --rerank-lambda need --rerank")
        super().__post_init__()
        check_least(self, 1, "memory")


@dataclass(frozen=True)
class CompareOptions:
    """Compare trained models in one table; runs that differ only in the seed share a row."""

    models: list[Path]
    """Models, each a run, checkpoint, model file or exported model, or the name of a built-in model; or
    evaluations (evaluation.json) and results of experiments (.json)."""
    data: Path | None = None
    """Manifest to evaluate all models on; default: the data of each run."""
    feature: Feature = "both"
    """Feature to search by."""
    skip_speed: bool = False
    """Do not measure images per second."""
    batch: int = 8
    """Samples per batch in the speed measurement."""
    repeats: int = 9
    """Forward passes of each model in the speed measurement; models take turns, the median counts."""
    samples: int = 2000
    """Bootstrap resamples for the confidence intervals."""
    out: Path | None = None
    """File to write the table to: .md, .csv or .json."""

    def __post_init__(self) -> None:
        check_least(self, 1, "batch", "repeats")
        check_least(self, 2, "samples")
        if self.out is not None and self.out.suffix.lower() not in (".md", ".csv", ".json"):
            raise ConfigError(f"--out {self.out}: a comparison can be written as .md, .csv or .json")
        places = [model.resolve() for model in self.models]
        for number, model in enumerate(self.models):
            if places[number] in places[:number]:
                raise ConfigError(f"{model} is given twice")


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page on trained models: metrics, curves, examples."""

    models: list[Path]
    """Models, each a run, checkpoint or model file; all are compared with the first."""
    out: Path = Path("report.html")
    """The page to write."""
    data: Path | None = None
    """Manifest to evaluate on; default: the data of each run."""

    def __post_init__(self) -> None:
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"--out {self.out}: a report is a web page; end its name in .html")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ModelOption):
    """Measure parameters, GFLOPs, tokens per block, latency, throughput and memory."""

    model: Path = field(metadata={NOTE: "Or a recipe or config (.yaml), which is measured untrained."})
    batch_sizes: tuple[int, ...] = (1, 8, 32)
    """Batch sizes in samples; a sample has one image per modality."""
    repeats: int = 20
    """Forward passes at each batch size; the median and 95th percentile are shown."""
    device: str = "cpu"
    """cpu, cuda or mps."""
    threads: int | None = None
    """CPU threads; default: PyTorch's choice, for an exported model all that this process may use."""
    set: list[str] = field(default_factory=list)
    """Options to change in a config, e.g. model.after_backbone.keep_ratio=0.3."""
    classes: int = 100
    """Number of training identities, which sets the size of the heads (configs only)."""
    cameras: int = 4
    """Number of training cameras (configs only)."""
    out: Path | None = None
    """File to write everything to, as JSON."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def __post_init__(self) -> None:
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ConfigError(
                f"--batch-sizes takes numbers over 0 such as 1,8,32, not {list(self.batch_sizes)}"
            )
        check_least(self, 1, "threads", "repeats")


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(JsonOption):
    """Show parameters, GFLOPs, tokens per stage and feature sizes."""

    config: Config
    classes: int = 100
    """Number of training identities, which sets the size of the heads."""
    cameras: int = 4
    """Number of training cameras."""


@dataclass(frozen=True, kw_only=True)
class ListOptions(JsonOption):
    """List the named backbones."""
