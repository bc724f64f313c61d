"""The options that a dataclass declares: dotted key, type, default and one line of help each."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Option:
    """One option."""

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


def union_members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; a plain type is the only member of itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


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
