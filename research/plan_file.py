"""Plans in YAML: experiments, and the data and weights they need, which lie elsewhere on every machine.

about: one line
needs:
  world: {what: the synthetic world, place: runs/world, make: "data synth $world"}
  market: {what: a manifest of Market-1501, environment: SLIMREID_MARKET1501}
set: {data.manifest: $world}          # for all experiments
missing: true                         # also every subset of the modalities
experiments:
  - {name: baseline, config: configs/synthetic/baseline.yaml, seeds: [0, 1, 2], set: {...}, label: ...}
  - {name: slim, config: ..., seeds: [0, 1, 2], set: {train.init_from: "$runs/baseline-seed{seed}"}}

`{seed}` in a value is the seed of the run, and `$runs` the folder of the plan's runs.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

from slimreid.ablation.plan import Experiment
from slimreid.errors import ConfigError

_PLAN_KEYS = {"about", "needs", "set", "missing", "experiments"}
_NEED_KEYS = {"what", "place", "make", "environment"}
_EXPERIMENT_KEYS = {"name", "config", "seeds", "set", "label"}


@dataclass(frozen=True)
class Need:
    """Data or weights that a plan cannot do without."""

    name: str
    what: str
    environment: str = ""
    """Variable that says where it is."""
    place: str = ""
    """Where it is if nothing else is said."""
    make: str = ""
    """Words after `slimreid` that make it there."""

    def find(self, places: Mapping[str, str]) -> str | None:
        """Where it is: as given, as the environment says, or at its usual place; None = nobody knows."""
        return places.get(self.name) or os.environ.get(self.environment) or self.place or None

    @property
    def shown(self) -> str:
        """What commands in results say instead of a place on this machine."""
        return self.place or f"${self.environment}"


@dataclass(frozen=True)
class Plan:
    """Experiments whose results make one table."""

    name: str
    about: str
    needs: tuple[Need, ...]
    experiments: tuple[Experiment, ...]
    lacking: tuple[Need, ...] = ()
    """What nobody knows the place of; the experiments cannot run then."""

    def to_make(self, places: Mapping[str, str]) -> list[list[str]]:
        """The commands that make what is not there yet, as words after `slimreid`."""
        where = {need.name: need.find(places) or "" for need in self.needs}
        absent = [need for need in self.needs if need.make and not Path(where[need.name]).exists()]
        return [shlex.split(Template(need.make).substitute(where)) for need in absent]


RUNS = Path("runs/experiments")
"""Where the runs of all plans are, unless something else is said."""


def read_plan(
    path: Path, places: Mapping[str, str] | None = None, root: Path | None = None, runs: Path = RUNS
) -> Plan:
    """Read a plan; `places` say where its needs are, `root` is what the paths of configs start from.

    `runs` is the folder of the runs of all plans.

    Raises `ConfigError` naming the file and what is wrong with it.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable plan ({error})") from None
    _check_keys(path, "a plan", values, _PLAN_KEYS, {"experiments"})
    needs = []
    for name, need in (values.get("needs") or {}).items():
        _check_keys(path, f"need '{name}'", need, _NEED_KEYS, {"what"})
        if not (need.get("place") or need.get("environment")):
            raise ConfigError(f"{path}: need '{name}' has neither a place nor an environment variable")
        needs.append(Need(name, **need))
    where = {need.name: need.find(places or {}) for need in needs}
    known = {name: place for name, place in where.items() if place} | {"runs": str(runs / path.stem)}
    experiments = [
        _experiment(path, entry, values, known, needs, root or Path()) for entry in values["experiments"]
    ]
    lacking = tuple(need for need in needs if where[need.name] is None)
    return Plan(path.stem, values.get("about", ""), tuple(needs), tuple(experiments), lacking)


def _check_keys(path: Path, what: str, values: Any, known: set[str], required: set[str]) -> None:
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: {what} must be 'key: value' lines, not {values!r}")
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}: {what} has no '{key}'; it has {', '.join(sorted(known))}")
    for key in sorted(required - set(values)):
        raise ConfigError(f"{path}: {what} lacks '{key}'")


def _experiment(
    path: Path,
    entry: Any,
    plan: Mapping[str, Any],
    places: Mapping[str, str],
    needs: list[Need],
    root: Path,
) -> Experiment:
    name = entry.get("name") if isinstance(entry, dict) else entry
    _check_keys(path, f"experiment '{name}'", entry, _EXPERIMENT_KEYS, {"name", "config"})
    changes = {**(plan.get("set") or {}), **(entry.get("set") or {})}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changes.items()}
    shown = {need.name: need.shown for need in needs} | {"runs": (RUNS / path.stem).as_posix()}
    try:
        shown_changes = {key: Template(t).substitute(shown) for key, t in texts.items() if "$" in t}
    except KeyError as error:
        raise ConfigError(
            f"{path}: experiment '{name}' names ${error.args[0]}, which is not among its needs"
        ) from None
    return Experiment(
        name=str(name),
        config=root / entry["config"],
        changes={key: Template(text).safe_substitute(places) for key, text in texts.items()},
        seeds=tuple(entry.get("seeds") or (0,)),
        shown=shown_changes,
        label=entry.get("label", ""),
        missing=bool(plan.get("missing", False)),
    )
