"""Grids of options: `model.after_backbone.keep_ratio=0.3,0.5,0.7` times others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from slimreid.config.files import known_keys
from slimreid.errors import ConfigError, did_you_mean

REFUSED = {
    "seed": "give --seeds instead",
    "data.manifest": "results on different data cannot be compared",
}
"""Options that cannot be an axis, and why."""


@dataclass(frozen=True)
class Axis:
    """An option and the values it takes."""

    key: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the key, as it is shown."""
        return self.key.rpartition(".")[2]


def parse_axis(text: str) -> Axis:
    """`key=value,value` with commas inside brackets left alone; raises `ConfigError` for anything else."""
    key, equals, rest = (part.strip() for part in text.partition("="))
    values = split_values(rest)
    if not equals or not all(values):
        raise ConfigError(f"--grid '{text}': give key=value,value, e.g. model.after_backbone.keep_ratio=0.3")
    if key not in known_keys():
        raise ConfigError(f"--grid: unknown option '{key}'{did_you_mean(key, known_keys())}")
    if key in REFUSED:
        raise ConfigError(f"--grid: '{key}' cannot be varied; {REFUSED[key]}")
    repeated = [value for value in values if values.count(value) > 1]
    if repeated:
        raise ConfigError(f"--grid: '{key}' has the value {repeated[0]} twice")
    return Axis(key, tuple(values))


def parse_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """All axes; raises `ConfigError` where there is none or two have the same key."""
    axes = tuple(parse_axis(text) for text in texts)
    if not axes:
        raise ConfigError("--grid is missing; say what to vary, e.g. model.after_backbone.keep_ratio=0.3,0.5")
    for axis in axes:
        if sum(axis.key == other.key for other in axes) > 1:
            raise ConfigError(f"--grid: '{axis.key}' is given twice; put all its values into one")
    return axes


def split_values(text: str) -> list[str]:
    """Split at commas that are not inside brackets: `[rgb],[rgb,tir]` are two values."""
    values, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values]


def points(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Every combination of values, {key: value}, the last axis changing fastest."""
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]
