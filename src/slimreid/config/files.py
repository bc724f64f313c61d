"""Reading configs from YAML files and dotted overrides, and saving the resolved one with a run."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast, get_type_hints

import yaml

from slimreid.config.recipes import find_config
from slimreid.config.training import Config
from slimreid.config.values import check_value, parse_value, union_members
from slimreid.config.yaml_text import EMPTY, read_yaml
from slimreid.errors import ConfigError, did_you_mean
from slimreid.files import write_text

CONFIG_NAME = "config.yaml"
_DEMO_SECTIONS = {"MODEL", "SOLVER", "INPUT", "DATASETS", "DATALOADER"}

REMOVED: dict[str, Any] = {
    "loss.completion_weight": 1.0,
    "loss.gamma": 64.0,
    "loss.temperature": 0.1,
    "model.completion": False,
    "model.original_weight": 1.0,
    "model.patch_mean": False,
    "optim.decay_norms": True,
    "optim.freeze_blocks": 0,
    "optim.gamma": 0.1,
    "optim.milestones": [],
    "optim.min_lr_ratio": 0.001,
    "optim.schedule": "cosine",
    "optim.warmup_start": 0.1,
    "train.eval_features": "both",
    "train.sync_heads": True,
    "transforms.dropout_unit": "batch",
    "transforms.erase_area": [0.02, 1 / 3],
    "transforms.erase_aspect": [0.3, 3.3],
    "transforms.share_erase": False,
    "transforms.share_geometry": True,
    "transforms.train_resize": "bicubic",
}
"""Options that are no more, with the value that stands for what is always done; files may still say so."""

T = TypeVar("T")


def load_config(files: Sequence[Path | str] = (), overrides: Iterable[str] = ()) -> Config:
    """Read recipes or YAML files in order, then dotted overrides such as `transforms.height=128`.

    Raises:
        ConfigError: naming the file and the key, with the nearest known one if it is unknown.
    """
    values: dict[str, Any] = {}
    for file in files:
        values |= read_config_file(find_config(file))
    for override in overrides:
        key, _, text = override.partition("=")
        values[key] = parse_value(text, known_option(key).type, key)
    return build_config(values)


def read_config_file(path: Path) -> dict[str, Any]:
    """Options that a YAML file sets, by dotted key, each in its type.

    Raises:
        ConfigError: for a file that cannot be read, an unknown key or a wrong value.
    """
    values = read_yaml(path)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: a config holds 'key: value' lines, such as seed: 0")
    if _DEMO_SECTIONS & values.keys():
        raise ConfigError(
            f"{path}: a config of DeMo; train with 'slimreid train --demo-config {path}', or turn its "
            f"checkpoint into a run with 'slimreid import-demo {path} CHECKPOINT --out RUN'"
        )
    try:
        return flat_values(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def config_from_dict(options: Mapping[str, Any]) -> Config:
    """A config from nested plain values, as JSON holds them; raises `ConfigError` naming the key."""
    return build_config(flat_values(options))


def flat_values(options: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested plain values by dotted key, each in the type its option has.

    Removed options are left out where they say what is always done now.

    Raises:
        ConfigError: for an unknown or removed key, a section that is a value or the other way round, or a
            wrong value.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = f"{prefix}{name}"
        if key in REMOVED and value == REMOVED[key]:
            continue
        if key not in _sections():
            found[key] = check_value(value, known_option(key).type, key)
        elif isinstance(value, Mapping):
            found |= flat_values(value, f"{key}.")
        elif value is None and NoneType in union_members(_sections()[key]):
            found[key] = None
        else:
            given = "empty" if value is EMPTY else repr(value)[:60]
            raise ConfigError(f"'{key}' is a section with options of its own, not {given}")
    return found


def build_config(values: Mapping[str, Any]) -> Config:
    """The config with these options, by dotted key, and defaults for the rest."""
    return build(Config, values)


def build(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from the values of its options, those of nested dataclasses by dotted key."""
    given: dict[str, Any] = {}
    types = field_types(cast(type, kind))
    for item in fields(cast(Any, kind)):
        inner = {key[len(item.name) + 1 :]: v for key, v in values.items() if key.startswith(f"{item.name}.")}
        section = section_type(types[item.name])
        if inner and section is not None:
            given[item.name] = build(section, inner)
        elif item.name in values:
            given[item.name] = values[item.name]
    return kind(**given)


@cache
def _options() -> dict[str, Option]:
    return {option.key: option for option in options_of(Config)}


@cache
def _sections() -> dict[str, Any]:
    """Types of the sections of a config, by dotted key."""

    def walk(kind: type, prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, type_ in field_types(kind).items():
            section = section_type(type_)
            if section is not None:
                found |= {f"{prefix}{name}": type_, **walk(section, f"{prefix}{name}.")}
        return found

    return walk(Config, "")


def without_removed(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Options by dotted key, as JSON holds them, without removed ones that say what is always done now."""
    return {key: value for key, value in flat.items() if key not in REMOVED or value != REMOVED[key]}


def known_keys() -> list[str]:
    """All dotted keys of a config."""
    return list(_options())


def known_option(key: str) -> Option:
    """The option of a config with this dotted key.

    Raises `ConfigError`: with the nearest known key, or with what is done instead of a removed option.
    """
    found = _options().get(key)
    if key in REMOVED:
        raise ConfigError(f"option '{key}' was removed; all is done as with {REMOVED[key]!r}")
    if found is None:
        raise ConfigError(f"unknown option '{key}'{did_you_mean(key, [*_options(), *_sections()])}")
    return found


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


@dataclass(frozen=True)
class Option:
    """What a field of an options dataclass says, as the command line and config files need it."""

    key: str
    """Dotted name, e.g. `train.epochs`."""
    type: Any
    default: Any
    """`dataclasses.MISSING` where the option must be given."""
    help: str
    metadata: Mapping[str, Any]
    """What the dataclass field says besides."""

    @property
    def required(self) -> bool:
        """Whether the option has no default."""
        return self.default is MISSING


@cache
def options_of(kind: type) -> tuple[Option, ...]:
    """Options of a dataclass in the order of declaration; those of nested dataclasses have dotted keys."""
    found: list[Option] = []
    types, helps = field_types(kind), _field_docs(kind)
    for item in fields(kind):
        section = section_type(types[item.name])
        if section is None:
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            help_ = helps.get(item.name, "")
            found.append(Option(item.name, types[item.name], default, help_, item.metadata))
        else:
            found += [
                Option(f"{item.name}.{o.key}", o.type, o.default, o.help, o.metadata)
                for o in options_of(section)
            ]
    return tuple(found)


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Types of the fields of a dataclass, with names resolved."""
    return get_type_hints(kind)


def section_type(kind: Any) -> type | None:
    """The dataclass that a field of this type holds, `X` or `X | None`; None for a plain value."""
    members = [member for member in union_members(kind) if member is not NoneType]
    if len(members) == 1 and isinstance(members[0], type) and is_dataclass(members[0]):
        return members[0]
    return None


def section_help(kind: type) -> dict[str, str]:
    """One line of help for each nested dataclass of `kind`, by field name."""
    helps = _field_docs(kind)
    return {name: helps.get(name, "") for name, t in field_types(kind).items() if section_type(t)}


@cache
def _field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass, with line breaks removed; parents' fields included."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        found |= _module_docs(owner.__module__).get(owner.__qualname__, {})
    return found


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    """The strings under the fields of every class of a module; empty where its source is not there."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: _class_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_docs(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for item, after in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[item.target.id] = " ".join(str(after.value.value).split())
    return found
