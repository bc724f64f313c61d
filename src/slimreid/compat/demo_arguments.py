"""DeMo-style command lines: `--demo-config FILE.yml KEY VALUE ...` as options of ours."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from slimreid.compat.demo import flatten, read_demo_options
from slimreid.errors import ConfigError

OPTION = "--demo-config"
PAIRS = "--demo-options"
_KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)*")


def read_demo_file(path: Path, pairs: Sequence[str] = ()) -> dict[str, Any]:
    """Old options (flat, dotted) of a YAML file, with KEY VALUE pairs on top.

    Raises `ConfigError` when the file or a value cannot be read, or a key has no value.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a YAML file ({error})") from None
    if not isinstance(found or {}, Mapping):
        raise ConfigError(f"{path}: not a DeMo config; it must hold sections such as MODEL and SOLVER")
    if len(pairs) % 2:
        raise ConfigError(f"'{pairs[-1]}' has no value; write old options as KEY VALUE pairs")
    options = flatten(found or {})
    for key, text in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            options[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigError(
                f"{key}: '{text}' cannot be read as a value; is a bracket or quote open?"
            ) from None
    return {key: _literal(value) for key, value in options.items()}


def _literal(value: Any) -> Any:
    """Old configs write tuples and quoted text as Python does: `('RGBNT201')`, `(256, 128)`."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return value


def expand_demo(arguments: Sequence[str]) -> list[str]:
    """Arguments in which `--demo-config FILE` and trailing KEY VALUE pairs act as options of ours.

    They become a config that comes first, so that options of ours win. The file and the pairs stay in
    the arguments under names of their own, for the command to say which had no effect. Arguments
    without `--demo-config` come back as they are. Raises `ConfigError` for refused options.
    """
    joined = next((a for a in arguments if a == OPTION or a.startswith(f"{OPTION}=")), None)
    if joined is None:
        return list(arguments)
    at = list(arguments).index(joined)
    path = joined.partition("=")[2] or next(iter(arguments[at + 1 :]), "")
    if not path:
        raise ConfigError(f"{OPTION} needs a file")
    head = [*arguments[:at], *arguments[at + 1 + ("=" not in joined) :]]
    head, pairs = _take_pairs(head)
    options = _nested(read_demo_options(read_demo_file(Path(path), pairs)).values)
    return ["--config", json.dumps(options), *head, OPTION, path, PAIRS, json.dumps(pairs)]


def _take_pairs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off old KEY VALUE pairs; a value that follows an option of ours is not a key."""
    rest: list[str] = []
    pairs: list[str] = []
    i = 0
    while i < len(arguments):
        word = arguments[i]
        if word.startswith("--") and "=" not in word:
            rest += arguments[i : i + 2]
            i += 2
        elif not word.startswith("-") and _KEY.fullmatch(word):
            pairs += arguments[i : i + 2]
            i += 2
        else:
            rest.append(word)
            i += 1
    return rest, pairs


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested dicts of plain values."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return nested
