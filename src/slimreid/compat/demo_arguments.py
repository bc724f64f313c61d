"""DeMo's config files and KEY VALUE pairs as options of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from slimreid.compat.demo_options import flatten, read_demo_options
from slimreid.config.yaml_text import EMPTY, parse_yaml, read_yaml
from slimreid.errors import ConfigError

_KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)*")


def read_demo_file(path: Path, pairs: Sequence[str] = ()) -> dict[str, Any]:
    """Old options (flat, dotted) of a YAML file, with KEY VALUE pairs on top.

    Raises `ConfigError` when the file or a value cannot be read, or a key has no value.
    """
    found = read_yaml(path)
    if not isinstance(found or {}, Mapping):
        raise ConfigError(f"{path}: not a DeMo config; it must hold sections such as MODEL and SOLVER")
    if len(pairs) % 2:
        raise ConfigError(f"'{pairs[-1]}' has no value; write old options as KEY VALUE pairs")
    options = flatten(found or {})
    for key, text in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            options[key] = parse_yaml(text)
        except ConfigError:
            raise ConfigError(
                f"{key}: '{text}' cannot be read as a value; is a bracket or quote open?"
            ) from None
    return {key: None if value is EMPTY else _literal(value) for key, value in options.items()}


def _literal(value: Any) -> Any:
    """Old configs write tuples and quoted text as Python does: `('RGBNT201')`, `(256, 128)`."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return value


def demo_config_options(path: Path | str, pairs: Sequence[str] = ()) -> dict[str, Any]:
    """Our options, nested, that stand for those of a DeMo config; raises `ConfigError` for refused ones."""
    return _nested(read_demo_options(read_demo_file(Path(path), pairs)).values)


def take_pairs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off DeMo's KEY VALUE pairs; a value that follows an option of ours is not a key."""
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
