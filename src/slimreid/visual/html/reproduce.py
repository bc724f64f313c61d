"""How to do it again: the commands behind a report, in the order in which they are typed."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slimreid.config import Config
from slimreid.config.files import CONFIG_NAME, config_text, load_config
from slimreid.config.synthetic import SynthOptions
from slimreid.data.manifest import MANIFEST_NAME, read_manifest
from slimreid.data.synthetic.generate import DESCRIPTION, VAL_IDENTITIES
from slimreid.errors import SlimReIDError
from slimreid.evaluation.metrics.rerank import KReciprocal
from slimreid.inference.similarity import feature_kinds
from slimreid.runs.folder import RunFolder
from slimreid.runs.reproduce import MANIFEST, shown_path, train_words
from slimreid.visual.html.parts import Section, section
from slimreid.visual.html.run import ReportRun, run_names

Runs = Sequence[ReportRun]
Moved = dict[Path | None, str]
"""Folder of a world -> where it is made again."""


def reproduce_section(runs: Runs, out: str) -> Section:
    """The commands that lead to this page, and the full config of each run."""
    typed = {
        run.name: [shlex.join(["slimreid", *s.command]) for s in run.starts if s.command] for run in runs
    }
    return section(
        "reproduce",
        "Reproduce",
        "Reproduce",
        commands=again_commands(runs, Path(out).name),
        started=[(name, "; then ".join(commands)) for name, commands in typed.items() if commands],
        configs=[(run.name, config_text(run.loaded.config).rstrip()) for run in runs],
    )


def again_commands(runs: Runs, page: str) -> list[str]:
    """Make the worlds that can be made, train, evaluate, write the page: all from nothing, one line each.

    Everything goes to a folder that is not there yet, where data and runs have the names they have in the
    report. Runs that others began from or follow are trained first. Data that cannot be made, and models
    without their config, are used where they are.
    """
    folder = _free("again", {path.name for path in Path().iterdir()})
    trained = _trained_runs(runs)
    worlds = _worlds(runs, trained)
    names = run_names(list(worlds)) if worlds else []
    moved: Moved = {root: f"{folder}/data/{name}" for root, name in zip(worlds, names, strict=True)}
    places = {run: f"{folder}/runs/{found.name}" for run, found in trained.items()}
    lines = [shlex.join(["slimreid", "data", "synth", moved[root], *words]) for root, words in worlds.items()]
    for run, found in trained.items():
        there = {option: places[source] for option, source in found.sources.items() if source in places}
        if trained_on := moved.get(_root(found.config.data.manifest)):
            there = {MANIFEST: trained_on, **there}
        lines.append(shlex.join(["slimreid", *train_words(RunFolder(run), there, places[run])]))
    made = [places.get(_folder(run.path), shown_path(run.path)) for run in runs]
    for one, place in zip(runs, made, strict=True):
        lines.append(shlex.join(["slimreid", "evaluate", place, *_evaluate_options(one), *_data(one, moved)]))
    other = next((words for run in runs if (words := _data(run, moved))), [])
    lines.append(shlex.join(["slimreid", "report", *made, "--out", f"{folder}/{page}", *other]))
    return lines


@dataclass(frozen=True)
class Trained:
    """A run that can be trained again."""

    name: str
    config: Config

    @property
    def sources(self) -> dict[str, Path]:
        """Option -> folder of the run that this one began from or follows."""
        given = {"init_from": self.config.train.init_from, "teacher": self.config.train.teacher_model}
        return {f"train.{name}": _folder(Path(path)) for name, path in given.items() if path}


def _trained_runs(runs: Runs) -> dict[Path, Trained]:
    """Folders of the runs to train, each after those it needs; models without a config are left out."""
    names = {_folder(run.path): run.name for run in runs}
    found: dict[Path, Trained] = {}
    seen: set[Path] = set()

    def add(folder: Path) -> None:
        if folder in seen or not (folder / CONFIG_NAME).is_file():
            return
        seen.add(folder)
        name = names.get(folder) or _free(folder.name, {*names.values(), *(t.name for t in found.values())})
        trained = Trained(name, load_config([folder / CONFIG_NAME]))
        for source in trained.sources.values():
            add(source)
        found[folder] = trained

    for folder in names:
        add(folder)
    return found


def _folder(path: Path) -> Path:
    """The folder of a run that is given by itself or by its model file."""
    return (path.parent if path.suffix == ".safetensors" else path).resolve()


def _free(name: str, taken: set[str]) -> str:
    """`name`, or `name-2` and so on: the first that is not taken."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(found for found in names if found not in taken)


def _root(manifest: str | Path | None) -> Path | None:
    """The folder whose manifest.csv is meant; None for a manifest of another name."""
    if not manifest:
        return None
    path = Path(manifest)
    if path.name == MANIFEST_NAME:
        return path.resolve().parent
    return path.resolve() if path.is_dir() else None


def _worlds(runs: Runs, trained: dict[Path, Trained]) -> dict[Path, list[str]]:
    """Folder of each synthetic world that runs are trained or measured on, and the options that make it.

    A model that cannot be trained again stays on the data where it is: its card names no other place.
    """
    given = [found.config.data.manifest for found in trained.values()]
    roots = [*map(_root, given), *(_root(run.data.path) for run in runs if not run.data.own)]
    options = {root: _world_options(root) for root in dict.fromkeys(roots) if root is not None}
    return {root: words for root, words in options.items() if words}


def _world_options(root: Path) -> list[str] | None:
    """Options of `slimreid data synth` that make a world; None where that command did not make it."""
    try:
        made = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))["options"]
        manifest = read_manifest(root)
        options = SynthOptions(**made)
    except (OSError, ValueError, KeyError, TypeError, SlimReIDError):
        return None
    if options.test_share != SynthOptions.test_share:  # Python alone can choose it
        return None
    words = []
    for key in ("identities", "cameras", "images_per_camera", "seed", "objects", "difficulty"):
        words += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    words += ["--size", "x".join(map(str, options.image_size))]
    held = len({s.identity for s in manifest.select("val")})
    everybody = len({s.identity for s in manifest.select("train", "val")})
    if held != max(2, round(VAL_IDENTITIES * everybody)):
        words += ["--val-identities", f"{held / max(1, everybody):g}"]
    return words


def _evaluate_options(run: ReportRun) -> list[str]:
    """What was asked for beside the usual."""
    evaluation = run.evaluation
    words = ["--missing", "all"]
    if set(evaluation.features) != set(feature_kinds(run.loaded, "all")):
        words += ["--feature", evaluation.main]
    if evaluation.protocol != run.manifest.protocol:
        words += ["--protocol", evaluation.protocol]
    if rerank := evaluation.rerank:
        words.append("--rerank")
        names = {"k1": "--rerank-k1", "k2": "--rerank-k2", "original_weight": "--rerank-lambda"}
        for key, option in names.items():
            if getattr(rerank, key) != getattr(KReciprocal, key):
                words += [option, f"{getattr(rerank, key):g}"]
    if evaluation.cameras != "auto":
        words += ["--camera-names", evaluation.cameras]
    if evaluation.skip_broken:
        words.append("--skip-broken")
    return words


def _data(run: ReportRun, moved: Moved) -> list[str]:
    """The option that names the data, where it is not that of the run."""
    if run.data.own:
        return []
    root = _root(run.data.path)
    return ["--data", moved[root] if root in moved else shown_path(run.data.path)]
