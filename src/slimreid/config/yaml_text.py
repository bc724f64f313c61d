"""YAML, read so that whatever is wrong with it becomes one error that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from slimreid.errors import ConfigError


class _Empty:
    """What a key without a value holds; `null` is None."""

    def __repr__(self) -> str:
        return "nothing"


EMPTY = _Empty()


class _Loader(yaml.SafeLoader):
    """Plain values only; a key left empty is not null, and dates stay text."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_null(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> _Empty | None:
    return None if node.value else EMPTY


_Loader.add_constructor("tag:yaml.org,2002:null", _construct_null)


def parse_yaml(text: str) -> Any:
    """What a YAML text says; raises `ConfigError` for one that cannot be read."""
    try:
        value = yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
        _check_acyclic(value, set(), set())
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML ({' '.join(str(error).split())})") from None
    except RecursionError:
        raise ConfigError("not YAML that can be read (nested too deeply)") from None
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise ConfigError(f"not YAML that can be read ({reason})") from None
    return value


def _check_acyclic(value: Any, above: set[int], done: set[int]) -> None:
    """Raise `ConfigError` for a list or table that holds itself."""
    if not isinstance(value, (dict, list)) or id(value) in done:
        return
    if id(value) in above:
        raise ConfigError("not YAML that can be read (an alias refers to itself)")
    above.add(id(value))
    for item in value.values() if isinstance(value, dict) else value:
        _check_acyclic(item, above, done)
    above.remove(id(value))
    done.add(id(value))


def read_yaml(path: Path) -> Any:
    """What a YAML file says; raises `ConfigError` naming the file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not YAML ({error})") from None
    try:
        return parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
