"""Reading configs from YAML and dotted overrides, and saving the resolved one with a run."""

from __future__ import annotations

import json
from argparse import ArgumentError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from slimreid.complaints import explain, nearest
from slimreid.config import Config
from slimreid.errors import ConfigError
from slimreid.files import write_text

CONFIG_NAME = "config.yaml"

BEFORE: dict[str, Any] = {"model.absent_weight": 1.0, "transforms.dropout_unit": "sample"}
"""What was done before these options existed, where it is not their default; files without them mean it."""

REMOVED: dict[str, Any] = {
    "model.patch_mean": False,
    "model.completion": False,
    "loss.completion_weight": 1.0,
}
"""Options that are no more, each with the value that did nothing, which saved files may still say."""


def add_config_options(parser: ArgumentParser) -> None:
    """Give a parser `--config FILE` (may be repeated), `--print_config` and one option per config key."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)  # the help of our options
    parser.add_argument("--config", action="config", help="YAML file with options; later ones win.")
    parser.add_class_arguments(Config, as_group=False)


def load_config(files: Sequence[Path | str] = (), overrides: Iterable[str] = ()) -> Config:
    """Read YAML files in order, then dotted overrides such as `transforms.height=128`.

    Raises `ConfigError` naming the key, with the nearest known one if it is unknown.
    """
    parser = ArgumentParser(exit_on_error=False)
    add_config_options(parser)
    arguments = [part for file in files for part in ("--config", check_config_file(Path(file)))]
    arguments += [f"--{override}" for override in overrides]
    try:
        return to_config(parser.instantiate(parser.parse_args(arguments)))
    except ArgumentError as error:
        raise ConfigError(explain(str(error), known_keys())) from None


def check_config_file(path: Path) -> str:
    """What `--config` takes for a YAML file: its name, or what it says without options that are no more.

    Raises `ConfigError` for a file that cannot be read or has an unknown key, with the nearest.
    """
    given = _read_options(path)
    try:
        values = without_removed(given)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    known = known_keys()
    parts = [key.split(".")[:-1] for key in known]
    sections = {".".join(part[:n]) for part in parts for n in range(1, len(part) + 1)}

    def check(values: Mapping[Any, Any], prefix: str) -> None:
        for name, value in values.items():
            key = f"{prefix}{name}"
            if key in known:
                continue
            if key not in sections:
                raise ConfigError(f"{path}: unknown option '{key}'{nearest(key, [*known, *sections])}")
            if not isinstance(value, dict):
                raise ConfigError(f"{path}: '{key}' is a section with options of its own, not {value!r}")
            check(value, f"{key}.")

    check(values, "")
    return str(path) if values == given else yaml.safe_dump(values)


def _read_options(path: Path) -> dict[str, Any]:
    """What a YAML file says; raises `ConfigError` for one that cannot be read or holds no options."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a YAML file ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a config holds 'key: value' lines, such as seed: 0")
    return values


def without_removed(options: Mapping[str, Any], *, refuse: bool = True, prefix: str = "") -> dict[str, Any]:
    """Saved options, nested or dotted, without those that are no more and did nothing.

    One that did something stays, or raises `ConfigError` with `refuse`.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = f"{prefix}{name}"
        if key in REMOVED and value == REMOVED[key]:
            continue
        if key in REMOVED and refuse:
            raise ConfigError(
                f"'{key}: {json.dumps(value)}' is not possible any more, the option was removed; train again "
                "without it, or use the version that it was made with"
            )
        nested = isinstance(value, Mapping)
        found[name] = without_removed(value, refuse=refuse, prefix=f"{key}.") if nested else value
    return found


def complete_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Nested options of a saved model in words of today, with what they did not say in their time.

    Raises `ConfigError` for an option that is no more and did something.
    """
    complete = without_removed(options)
    for key, value in BEFORE.items():
        section, name = key.split(".")
        if isinstance(complete.setdefault(section, {}), dict):
            complete[section].setdefault(name, value)
    return complete


def to_config(values: Any) -> Config:
    """The config among parsed and instantiated values (a namespace with at least the config's fields)."""
    return Config(**{name: getattr(values, name) for name in Config.__dataclass_fields__})


def known_keys() -> list[str]:
    """All dotted keys of a config."""

    def walk(prefix: str, value: object) -> list[str]:
        if not hasattr(value, "__dataclass_fields__"):
            return [prefix]
        fields = value.__dataclass_fields__
        return [k for name in fields for k in walk(f"{prefix}.{name}".lstrip("."), getattr(value, name))]

    return walk("", Config())


def save_config(config: Config, folder: Path, name: str = CONFIG_NAME) -> Path:
    """Write the full resolved config to `folder`/config.yaml, from which it can be read back."""
    path = folder / name
    write_text(path, config_text(config))
    return path


def config_text(config: Config) -> str:
    """All options as YAML, in the order in which they are declared."""
    return yaml.safe_dump(_plain(asdict(config)), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    """Tuples as lists, so that YAML stays plain."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
