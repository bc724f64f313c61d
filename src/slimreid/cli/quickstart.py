"""The quickstart: generate a dataset, search it, train and evaluate three models, write a report.

Everything is kept in one folder; what is there and was made with the same options is not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slimreid.cli.quickstart_verdicts import SPEED_SETTING, speed_ratios
from slimreid.config import Config
from slimreid.config.files import load_config
from slimreid.config.model import DEFAULT_MODEL
from slimreid.data.manifest import read_manifest
from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.generate import is_world, make_world
from slimreid.devices import torch_threads
from slimreid.errors import ConfigError
from slimreid.evaluation.reports.evaluate import JSON_NAME, evaluation_folder
from slimreid.evaluation.reports.formatting import points
from slimreid.inference.features.data import open_data
from slimreid.inference.features.embed_data import embed_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load, shipped_models
from slimreid.inference.search import search
from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import Callback
from slimreid.training.environment import keep_freed_memory
from slimreid.training.loop import train
from slimreid.visual.datasets.views import dataset_rows, save_sheet
from slimreid.visual.html.report import write_report
from slimreid.visual.html.run import ReportRun, gather_run
from slimreid.visual.ranks.rank_sheet import draw_answers

TOP = 5
"""Answers that are shown."""

MODELS = ("baseline", "sdtps", "slim")
"""Recipes of the synthetic world that are trained, the reference first."""
FASTER = "slim"
"""The one that starts from the trained reference and is distilled from it."""
WORLD = "world"
SPEED_NAME = "speed.json"


@dataclass(frozen=True)
class Size:
    """How much is done: the dataset, and what the recipes are changed by."""

    world: SynthOptions
    changes: tuple[str, ...]
    slim_epochs: int
    """Epochs of the model that starts from the reference."""
    speed_batch: int = 4
    """Samples per forward pass when throughput is measured."""
    speed_rounds: int = 5
    """Forward passes of each model when throughput is measured."""


FULL = Size(
    SynthOptions(identities=64, cameras=4, images_per_camera=3, size=(96, 48), difficulty=0.3),
    ("train.epochs=10", "train.threads=1", "data.workers=1", "transforms.height=96", "transforms.width=48"),
    slim_epochs=4,
)
FAST = Size(
    SynthOptions(identities=24, cameras=3, images_per_camera=2, size=(64, 32), difficulty=0.2),
    (
        "train.epochs=4",
        "train.threads=1",
        "optim.warmup_epochs=1",
        "transforms.height=64",
        "transforms.width=32",
        "transforms.pad=3",
        "batch.num_ids=4",
        "data.workers=0",
    ),
    slim_epochs=1,
    speed_batch=1,
    speed_rounds=2,
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
    """Throughput of each model relative to the reference, measured at `SPEED_SETTING`."""


@torch_threads(1)
def run_quickstart(
    output: Path,
    size: Size = FULL,
    on_stage: Callable[[Stage], None] | None = None,
    callback: Callable[[str], Callback] | None = None,
) -> Quickstart:
    """Do what is not done yet in `output`; `on_stage` is called at the end of each step.

    `callback` makes the training callback of a named model. Raises `ConfigError` when the folder holds
    something made with other options. It takes one thread: these models are so small that a second one mostly
    waits, which on a busy machine doubles the time, and sums do not depend on the number of cores.
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
    if DEFAULT_MODEL in shipped_models():
        with stage("search") as told:
            told["what"] = first_search(world, output / "search.png")
    with stage("look") as told:
        told["what"] = _draw_sheets(world, output)
    for model in MODELS:
        with stage(f"train {model}") as told:
            told["what"] = _train(model, output, size, callback)
    runs = []
    for model in MODELS:
        with stage(f"measure {model}") as told:
            runs.append(gather_run(output / model, model))
            result = runs[-1].scores.result
            told["what"] = f"{result.valid_queries} queries, every subset of the modalities"
    report = output / "report.html"
    with stage("report") as told:
        if not _is_newer(report, [evaluation_folder(run.loaded.path) / JSON_NAME for run in runs]):
            write_report(runs, report)
        told["what"] = f"{report} ({report.stat().st_size / 1e6:.1f} MB)"
    with stage("speed") as told:
        speed = speed_ratios(runs, output / SPEED_NAME, batch=size.speed_batch, rounds=size.speed_rounds)
        told["what"] = SPEED_SETTING
    return Quickstart(runs, stages, report, speed)


def model_config(model: str, output: Path, size: Size) -> Config:
    """The recipe of a model for the dataset in `output`, at the given size."""
    return load_config([f"synthetic/{model}"], model_changes(model, output, size))


def model_changes(model: str, output: Path, size: Size) -> list[str]:
    """What is changed of the recipe of a model, as `key=value`."""
    changes = [*size.changes, f"data.manifest={(output / WORLD / 'manifest.csv').as_posix()}"]
    if model == FASTER:
        source = (output / MODELS[0]).as_posix()
        changes += [f"train.init_from={source}", f"train.teacher={source}"]
        changes += [f"train.epochs={size.slim_epochs}", "optim.warmup_epochs=0"]
    return changes


def _make_world(folder: Path, options: SynthOptions) -> str:
    if not is_world(folder, options):
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(f"{folder} holds another dataset; remove it or choose another --out")
        make_world(folder, options)
    manifest = read_manifest(folder)
    people = len({sample.identity for sample in manifest.samples})
    samples = len({tuple(sample.images.values()) for sample in manifest.samples})
    modalities = len(manifest.modalities)
    return f"{people} people × {options.cameras} cameras, {samples} samples in {modalities} modalities"


def _draw_sheets(world: Path, output: Path) -> str:
    """A page and a picture of a few people of the dataset."""
    page, picture = output / "sheet.html", output / "sheet.png"
    if not (page.is_file() and picture.is_file()):
        manifest = read_manifest(world)
        rows = dataset_rows(manifest)
        for path in (page, picture):
            save_sheet(rows, manifest.modalities, path, title="The synthetic world", note=manifest.origin)
    return f"{page}, {picture.name}"


def _train(model: str, output: Path, size: Size, callback: Callable[[str], Callback] | None) -> str:
    config, folder = model_config(model, output, size), output / model
    if not _is_trained(folder, config):
        changes = [f"--{change}" for change in model_changes(model, output, size)]
        command = ["train", f"synthetic/{model}", *changes, "--out", folder.as_posix()]
        train(config, folder, "auto", [callback(model)] if callback else (), command=command)
    start = f", started from {MODELS[0]}" if config.train.init_from else ""
    return f"{config.train.epochs} epochs of {config.model.backbone}{start}"


def _is_trained(folder: Path, config: Config) -> bool:
    """Whether a run is finished that was made with the same options."""
    run = RunFolder(folder)
    found = run.config() if run.finished else None
    if found is None:
        return False
    begun = replace(found.train, init_from=config.train.init_from, teacher=config.train.teacher)
    return replace(found, data=config.data, train=begun) == config  # the folder may have been moved


def _is_newer(path: Path, sources: Sequence[Path]) -> bool:
    if not path.is_file() or not all(source.is_file() for source in sources):
        return False
    return all(path.stat().st_mtime_ns > source.stat().st_mtime_ns for source in sources)


def headline(run: ReportRun, speed: float) -> list[Any]:
    """Name and figures of a run, for the table at the end."""
    result, interval = run.scores.result, run.scores.interval
    bounds = f"{points(interval.low)}–{points(interval.high)}"
    shares = (points(share) for share in (result.rank(1), result.minp, result.chance_map))
    return [run.name, points(result.map), bounds, *shares, f"{run.summary.gflops:.3f}", f"{speed:.2f} ×"]


HEADLINE = ("model", "mAP", "95 %", "rank-1", "mINP", "chance", "GFLOPs", "throughput")


def first_search(world: Path, picture: Path) -> str:
    """Search the first query of a dataset among images of other cameras; draw and tell what is found."""
    loaded = load(DEFAULT_MODEL, threads=1)
    data = open_data(loaded, world)
    samples = data.manifest.samples
    asked = next(sample for sample in samples if sample.split == "query")
    others = [s for s in samples if s.split == "gallery" and s.camera != asked.camera]
    options = Extraction(workers=0, batch=16, show_progress=False)
    query, gallery = (
        embed_data(loaded, replace(data, manifest=data.manifest.with_samples(rows)), extraction=options)[0]
        for rows in ([asked], others)
    )
    (answer,) = search(query, gallery, TOP)
    draw_answers([answer], loaded, picture)
    found = " ".join(hit.identity for hit in answer.hits)
    return f"who is {asked.identity}? {found} among {answer.searched} ({picture})"
