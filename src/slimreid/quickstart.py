"""The first minutes: a world, three models trained on it, measured honestly, and a report.

Everything is kept in one folder; what is there and was made with the same options is not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.config_io import CONFIG_NAME, load_config
from slimreid.data.manifest import read_manifest
from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.world import is_world, make_world
from slimreid.errors import ConfigError
from slimreid.evaluation.evaluation import JSON_NAME, evaluation_folder
from slimreid.evaluation.points import points
from slimreid.loading import MODEL_NAME
from slimreid.profiling import embedder, measure_interleaved, median_ratios, random_batch
from slimreid.recipes import recipe_path
from slimreid.training.memory import keep_freed_memory
from slimreid.training.records import Watcher
from slimreid.training.trainer import RESULT_NAME, train
from slimreid.visual.dataset_views import dataset_rows, save_sheet
from slimreid.visual.report import write_report
from slimreid.visual.report_run import ReportRun, gather_run

MODELS = ("baseline", "sdtps", "slim")
"""Shipped configs of the synthetic world that are trained, the reference first."""
FASTER = "slim"
"""The one that begins from the reference and follows it, to be as good in less time."""
WORLD = "world"
SPEED_BATCH, SPEED_ROUNDS = 32, 9


@dataclass(frozen=True)
class Size:
    """How much is done: the world, and what the shipped configs are changed by."""

    world: SynthOptions
    changes: tuple[str, ...]
    slim_epochs: int
    """Epochs of the model that begins from the reference."""


FULL = Size(
    SynthOptions(identities=64, cameras=4, images_per_camera=3),
    ("train.epochs=10", "data.workers=1"),
    slim_epochs=4,
)
FAST = Size(
    SynthOptions(identities=24, cameras=3, images_per_camera=2, size=(64, 32), difficulty=0.2),
    (
        "train.epochs=8",
        "optim.warmup_epochs=1",
        "transforms.height=64",
        "transforms.width=32",
        "transforms.pad=3",
        "batch.identities=4",
        "data.workers=0",
    ),
    slim_epochs=2,
)


@dataclass(frozen=True)
class Stage:
    """One step that was done, and how long it took."""

    name: str
    what: str
    seconds: float


@dataclass(frozen=True)
class Quickstart:
    """What came out."""

    runs: list[ReportRun]
    stages: list[Stage]
    report: Path
    speed: dict[str, float]
    """How many times as fast as the reference each model embeds."""


def run_quickstart(
    output: Path,
    size: Size = FULL,
    on_stage: Callable[[Stage], None] | None = None,
    watcher: Callable[[str], Watcher] | None = None,
) -> Quickstart:
    """Do whatever is not done yet in `output`; `on_stage` is told of each step at its end.

    `watcher` makes what follows the training of a model. Raises `ConfigError` when the folder holds
    something made with other options.
    """
    keep_freed_memory()
    stages: list[Stage] = []

    @contextmanager
    def stage(name: str) -> Iterator[dict[str, str]]:
        told, started = {"what": ""}, time.monotonic()
        yield told
        stages.append(Stage(name, told["what"], time.monotonic() - started))
        if on_stage is not None:
            on_stage(stages[-1])

    world = output / WORLD
    with stage("world") as told:
        told["what"] = _make_world(world, size.world)
    with stage("look") as told:
        told["what"] = _draw_sheets(world, output)
    for model in MODELS:
        with stage(f"train {model}") as told:
            told["what"] = _train(model, output, size, watcher)
    runs = []
    for model in MODELS:
        with stage(f"measure {model}") as told:
            runs.append(gather_run(output / model, model))
            result = runs[-1].scores.result
            told["what"] = f"{result.valid_queries} queries, every subset of the spectra"
    report = output / "report.html"
    with stage("report") as told:
        if not _is_newer(report, [evaluation_folder(run.loaded.path) / JSON_NAME for run in runs]):
            write_report(runs, report)
        told["what"] = f"{report} ({report.stat().st_size / 1e6:.1f} MB)"
    with stage("speed") as told:
        speed = measure_speed(runs)
        told["what"] = f"{SPEED_BATCH} samples at once, {SPEED_ROUNDS} times in turn"
    return Quickstart(runs, stages, report, speed)


def model_config(model: str, output: Path, size: Size) -> Config:
    """The shipped config of a model for the synthetic world in `output`, at the given size."""
    changes = [*size.changes, f"data.manifest={(output / WORLD / 'manifest.csv').as_posix()}"]
    if model == FASTER:
        source = (output / MODELS[0]).as_posix()
        changes += [f"train.start_from={source}", f"train.teacher={source}"]
        changes += [f"train.epochs={size.slim_epochs}", "optim.warmup_epochs=0"]
    return load_config([recipe_path(f"synthetic/{model}")], changes)


def measure_speed(runs: Sequence[ReportRun]) -> dict[str, float]:
    """How many times as fast as the first run each one embeds, taking turns."""
    models = {run.name: run.loaded.model.eval() for run in runs}
    passes = {name: embedder(model, *random_batch(model, SPEED_BATCH)) for name, model in models.items()}
    return median_ratios(measure_interleaved(passes, SPEED_ROUNDS), runs[0].name)


def _make_world(folder: Path, options: SynthOptions) -> str:
    if not is_world(folder, options):
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(f"{folder} holds another world; remove it or choose another --output")
        make_world(folder, options)
    manifest = read_manifest(folder)
    people = len({sample.identity for sample in manifest.samples})
    images = len({tuple(sample.images.values()) for sample in manifest.samples})
    return (
        f"{people} people × {options.cameras} cameras, {images} samples in {len(manifest.modalities)} spectra"
    )


def _draw_sheets(world: Path, output: Path) -> str:
    """A page and a picture of a few people of the world."""
    page = output / "sheet.html"
    if not all(path.is_file() for path in (page, page.with_suffix(".png"))):
        manifest = read_manifest(world)
        rows = dataset_rows(manifest)
        for path in (page, page.with_suffix(".png")):
            save_sheet(rows, manifest.modalities, path, title="The synthetic world", note=manifest.origin)
    return f"{page}, {page.with_suffix('.png').name}"


def _train(model: str, output: Path, size: Size, watcher: Callable[[str], Watcher] | None) -> str:
    config, folder = model_config(model, output, size), output / model
    if not _is_trained(folder, config):
        train(config, folder, "auto", [watcher(model)] if watcher else ())
    begun = f", begun from {MODELS[0]}" if config.train.start_from else ""
    return f"{config.train.epochs} epochs of {config.model.backbone}{begun}"


def _is_trained(folder: Path, config: Config) -> bool:
    """Whether a run is finished that was made with the same options."""
    if not all((folder / name).is_file() for name in (RESULT_NAME, MODEL_NAME, CONFIG_NAME)):
        return False
    found = load_config([folder / CONFIG_NAME])
    begun = replace(found.train, start_from=config.train.start_from, teacher=config.train.teacher)
    return replace(found, data=config.data, train=begun) == config  # the folder may have been moved


def _is_newer(path: Path, sources: Sequence[Path]) -> bool:
    if not path.is_file() or not all(source.is_file() for source in sources):
        return False
    return all(path.stat().st_mtime_ns > source.stat().st_mtime_ns for source in sources)


def headline(run: ReportRun, speed: float) -> list[Any]:
    """Name and figures of a run, for the table at the end."""
    result, interval, summary = run.scores.result, run.scores.interval, run.summary
    return [
        run.name,
        points(result.map),
        f"{points(interval.low)}–{points(interval.high)}",
        points(result.rank(1)),
        points(result.minp),
        points(result.chance_map),
        f"{summary.gflops:.3f}",
        f"{speed:.2f} ×",
    ]


HEADLINE = ("model", "mAP", "95 %", "rank-1", "mINP", "chance", "GFLOPs", "speed")
