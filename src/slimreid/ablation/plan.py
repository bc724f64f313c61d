"""What is to be run: experiments, each with a config, changed options and seeds, as jobs of one run each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slimreid.ablation.grid import Axis, points
from slimreid.config import Config
from slimreid.config.files import load_config
from slimreid.data.loader import open_manifest
from slimreid.data.manifest import Manifest
from slimreid.errors import ConfigError
from slimreid.runs.identity import dataset_fingerprint
from slimreid.training.preparation import fitted
from slimreid.training.validation import check_parts

Key = tuple[str, str]
"""Title and data of an experiment."""


@dataclass(frozen=True)
class Experiment:
    """A config with some options changed, to be run with several seeds."""

    name: str
    """Unique within its plan; part of file names."""
    config: Path
    """YAML file."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> value, over the file; `{seed}` in a value is the seed of the run."""
    seeds: tuple[int, ...] = (0,)
    shown: Mapping[str, str] = field(default_factory=dict)
    """What results say instead of some of the changes: places that are different on every machine."""
    label: str = ""
    """What tables call it; the name unless given."""
    missing: bool = False
    """Whether every subset of the modalities is measured too."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.=+-]+", self.name):
            raise ConfigError(f"experiment '{self.name}': use letters, digits and . _ - + = in its name")
        if not self.seeds:
            raise ConfigError(f"experiment '{self.name}' has no seeds")

    @property
    def title(self) -> str:
        """What tables call it."""
        return self.label or self.name

    def at(self, seed: int) -> Experiment:
        """The experiment as it is run with one of its seeds."""

        def named(values: Mapping[str, str]) -> dict[str, str]:
            return {key: value.replace("{seed}", str(seed)) for key, value in values.items()}

        return replace(self, changes=named(self.changes), shown=named(self.shown))


@dataclass(frozen=True)
class Job:
    """One run of an experiment: one seed."""

    experiment: Experiment
    config: Config
    """All options, resolved."""
    run: Path
    """Folder of the run."""
    result: Path
    """JSON file that is there when the job is finished."""
    dataset: str
    """Fingerprint of the manifest's rows."""

    @property
    def key(self) -> Key:
        """What its other seeds have in common with it."""
        return self.experiment.title, self.dataset

    @property
    def name(self) -> str:
        """Unique within a plan."""
        return f"{self.experiment.name}-seed{self.config.seed}"

    def command(self) -> list[str]:
        """The words of the `slimreid` command that starts the run, or resumes it."""
        return [*self._words(self.experiment.changes), "--out", str(self.run), "--resume", "auto"]

    def shown_command(self) -> str:
        """The same as a person would type it anywhere, without the places of this machine."""
        words = self._words({**self.experiment.changes, **self.experiment.shown})
        return " ".join(["slimreid", *(w if w.startswith("$") else shlex.quote(w) for w in words)])

    def _words(self, changes: Mapping[str, str]) -> list[str]:
        words = ["train", "--config", self.experiment.config.as_posix()]
        for key, value in changes.items():
            words += [f"--{key}", value]
        return [*words, "--seed", str(self.config.seed)]


def grid_experiments(
    config: Path, axes: Sequence[Axis], seeds: Sequence[int], missing: bool = False
) -> list[Experiment]:
    """One experiment per combination of the axes' values."""
    names = [axis.name for axis in axes]
    shown = {a.key: a.name if names.count(a.name) == 1 else a.key for a in axes}
    files = {axis.key: _file_names(axis.values) for axis in axes}
    found = []
    for point in points(axes):
        label = ", ".join(f"{shown[key]}={value}" for key, value in point.items())
        name = "_".join(f"{shown[key]}={files[key][value]}" for key, value in point.items())
        found.append(Experiment(name, config, point, tuple(seeds), label=label, missing=missing))
    return found


def _file_names(values: Sequence[str]) -> dict[str, str]:
    """A different file name for each value: `-0.5` as it is, `[rgb, tir]` as `rgb-tir`."""
    found: dict[str, str] = {}
    for value in values:
        name = re.sub(r"[^\w.-]+", " ", value).strip().replace(" ", "-") or "none"
        same = sum(other.partition("+")[0] == name for other in found.values())
        found[value] = f"{name}+{same + 1}" if same else name
    return found


def make_jobs(experiments: Sequence[Experiment], runs: Path, results: Path) -> list[Job]:
    """A job per experiment and seed, every config and dataset checked, before anything is started.

    Raises `ConfigError` naming the experiment and the option, or `DataError` for its data.
    """
    names = [experiment.name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two experiments are called '{name}'; give one another name")
    manifests: dict[tuple[Any, ...], Manifest] = {}
    jobs = []
    for experiment, seed in ((e, seed) for e in experiments for seed in e.seeds):
        experiment = experiment.at(seed)
        config = replace(_resolve(experiment), seed=seed)
        data = (config.data.manifest, config.data.modalities, config.train.select_on)
        if data not in manifests:
            manifests[data] = open_manifest(config)
            if "test" not in check_parts(manifests[data], config.train.select_on):
                raise ConfigError(f"{config.data.manifest}: no query and gallery rows to compare by")
        config, name = fitted(config, manifests[data]), f"{experiment.name}-seed{seed}"
        rows = dataset_fingerprint(manifests[data])
        jobs.append(Job(experiment, config, runs / name, results / f"{name}.json", rows))
    return jobs


def _resolve(experiment: Experiment) -> Config:
    """The config of an experiment; raises `ConfigError` naming it."""
    changes = [f"{key}={value}" for key, value in experiment.changes.items()]
    try:
        config = load_config([experiment.config], changes)
    except ConfigError as error:
        raise ConfigError(f"experiment '{experiment.title}': {error}") from None
    weights = config.model.pretrained
    if weights and "://" not in weights and not Path(weights).is_file():
        raise ConfigError(f"experiment '{experiment.title}': model.pretrained {weights}: no such file")
    return config
