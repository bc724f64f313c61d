"""What is to be run: experiments, each with a config, changed options and seeds, as jobs of one run each."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.config_io import load_config
from slimreid.data.loader import open_manifest
from slimreid.errors import ConfigError
from slimreid.experiments.grid import Axis, points
from slimreid.training.resume import FREE_KEYS, ROUNDING_KEYS, dataset_fingerprint, flat_options
from slimreid.training.validation import check_parts

BY_NAME = ("model.pretrained", "train.start_from", "train.teacher")
"""Options that name files whose content decides a result, wherever they lie."""
WITHOUT_EFFECT = (FREE_KEYS - set(BY_NAME)) | ROUNDING_KEYS | {"seed"}
"""Options that do not change a result by more than rounding, or that are compared otherwise: the rows of the
manifest by their fingerprint, seeds by themselves."""


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
        """The words of the `slimreid` command that does the run, or goes on with it."""
        return [*self._words(self.experiment.changes), "--output", str(self.run), "--resume", "auto"]

    def shown_command(self) -> str:
        """The same as a person would type it anywhere, without the places of this machine."""
        words = self._words({**self.experiment.changes, **self.experiment.shown})
        return " ".join(["slimreid", *(w if w.startswith("$") else shlex.quote(w) for w in words)])

    def _words(self, changes: Mapping[str, str]) -> list[str]:
        words = ["train", "--config", self.experiment.config.as_posix()]
        for key, value in changes.items():
            words += [f"--{key}", value]
        return [*words, "--seed", str(self.config.seed)]


def deciding_options(config: Config | Mapping[str, Any]) -> dict[str, Any]:
    """The options that decide a result, {dotted key: value}, without the seed and without places of files.

    Weights that a run begins from or follows count by the name of their file or folder, in which the run's
    own seed is left out: `base-seed3` is `base-seed` for a run with seed 3.
    """
    flat = flat_options(asdict(config) if isinstance(config, Config) else config)
    options = {key: value for key, value in flat.items() if key not in WITHOUT_EFFECT}
    for key in BY_NAME:
        place = options.get(key)
        if place and "://" not in place:
            name = re.split(r"[\\/]", place.rstrip("\\/"))[-1]
            options[key] = re.sub(rf"seed{flat['seed']}(?!\d)", "seed", name)
    return options


def options_hash(options: Mapping[str, Any]) -> str:
    """SHA-256 of deciding options, whatever their order."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def grid_experiments(
    config: Path, axes: Sequence[Axis], seeds: Sequence[int], missing: bool = False
) -> list[Experiment]:
    """One experiment per combination of the axes' values."""
    names = [axis.name for axis in axes]
    shown = {a.key: a.name if names.count(a.name) == 1 else a.key for a in axes}
    found = []
    for point in points(axes):
        label = ", ".join(f"{shown[key]}={value}" for key, value in point.items())
        name = "_".join(f"{shown[key]}={_file_name(value)}" for key, value in point.items())
        found.append(Experiment(name, config, point, tuple(seeds), label=label, missing=missing))
    return found


def _file_name(value: str) -> str:
    return re.sub(r"[^\w.-]+", "-", value).strip("-") or "none"


def make_jobs(experiments: Sequence[Experiment], runs: Path, results: Path) -> list[Job]:
    """A job per experiment and seed, every config and dataset checked, before anything is started.

    Raises `ConfigError` naming the experiment and the option, or `DataError` for its data.
    """
    names = [experiment.name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two experiments are called '{name}'; give one another name")
    datasets: dict[tuple[Any, ...], str] = {}
    jobs = []
    for experiment, seed in ((e, seed) for e in experiments for seed in e.seeds):
        experiment = experiment.at(seed)
        config = replace(_resolve(experiment), seed=seed)
        data = (config.data.manifest, config.data.modalities, config.train.select_on)
        if data not in datasets:
            manifest = open_manifest(config)
            if "test" not in check_parts(manifest, config.train.select_on):
                raise ConfigError(f"{config.data.manifest}: no query and gallery rows to compare by")
            datasets[data] = dataset_fingerprint(manifest)
        name = f"{experiment.name}-seed{seed}"
        jobs.append(Job(experiment, config, runs / name, results / f"{name}.json", datasets[data]))
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
