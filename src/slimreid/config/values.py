"""Values of options: from YAML, JSON or the command line to the option's type; checks of words and ranges."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from slimreid.config.yaml_text import EMPTY, parse_yaml
from slimreid.errors import ConfigError, did_you_mean

NONE_WORDS = ("none", "null")
"""What stands for no value, where an option may have none."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST = 2**63
_TRUTH = {"true": True, "false": False, "yes": True, "no": False}
_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    tuple: "a list such as [a,b]",
    list: "a list such as [a,b]",
    dict: "a table such as {a: b}",
}
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict = 2, 4, 4, 3


def check_words(options: Any, section: str) -> None:
    """Raise `ConfigError` where a field of `Literal` type has a word that is none of its own."""
    for name, words in _words(options.__class__).items():
        check_word(f"{section}.{name}", getattr(options, name), words)


def check_word(key: str, word: object, known: Iterable[str]) -> None:
    """Raise `ConfigError` with the nearest known word unless `word` is one."""
    known = tuple(known)
    if word not in known:
        hint = did_you_mean(str(word), known)
        raise ConfigError(f"{key}: '{word}' is unknown{hint} (known: {', '.join(known)})")


def check_range(
    key: str, value: float, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    """Raise `ConfigError` unless low ≤ value ≤ high; an open end does not belong to the range."""
    above = low < value if open_low else low <= value
    below = value < high if open_high else value <= high
    if not (above and below):
        bounds = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise ConfigError(f"{key}: {value} is not in {bounds}")


def check_least(options: object, least: int, *names: str, section: str = "") -> None:
    """Raise `ConfigError` for an option below `least`; None is left alone.

    Options have the name they have in a `section` of a config, or else on the command line.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:  # NaN is refused too
            key = f"{section}.{name}" if section else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{key} must be at least {least}, not {value}")


@cache
def _words(kind: Any) -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(kind)
    named = ((field.name, hints[field.name]) for field in fields(kind))
    return {name: get_args(hint) for name, hint in named if get_origin(hint) is Literal}


def check_value(value: Any, kind: Any, key: str) -> Any:
    """A plain value, as YAML or JSON holds it, in the type `kind`.

    Raises:
        ConfigError: naming the key, the value and what it should be.
    """
    members = union_members(kind)
    if value is EMPTY:
        hint = ", or null for none" if NoneType in members else ""
        raise ConfigError(f"{key} is left empty; give a value{hint}, or leave the line out")
    if NoneType in members and (value is None or _is_none_word(value, members)):
        return None
    found = [member for member in members if member is not NoneType]
    for member in found[:-1]:
        try:
            return _check(value, member, key)
        except ConfigError:
            continue
    return _check(value, found[-1], key)


def parse_value(text: str, kind: Any, key: str) -> Any:
    """The value that a word of the command line stands for; raises as `check_value`.

    A list may be written `a,b` or `[a, b]`.
    """
    members = [member for member in union_members(kind) if member is not NoneType]
    if not text:
        raise ConfigError(f"{key} is left empty; give a value or leave it out")
    if "\0" in text:
        raise ConfigError(f"{key}: {_shown(text)} holds a NUL character")
    is_table = text.startswith("{") and any(get_origin(member) is dict for member in members)
    plain = (member in (str, Path, bool, int, float) or get_origin(member) is Literal for member in members)
    if any(plain) and not is_table:
        return check_value(_TRUTH.get(text, text) if bool in members else text, kind, key)
    if text in NONE_WORDS:
        return check_value(None, kind, key)
    is_list = any((get_origin(member) or member) in (list, tuple) for member in members)
    try:
        value = parse_yaml(f"[{text}]" if is_list and not text.startswith(("[", "{")) else text)
    except ConfigError:
        raise _wrong(key, text, _name(members[0])) from None
    return check_value(value, kind, key)


def _is_none_word(value: Any, members: tuple[Any, ...]) -> bool:
    choices = [choice for m in members if get_origin(m) is Literal for choice in get_args(m)]
    return value in NONE_WORDS and value not in choices if isinstance(value, str) else False


def _check(value: Any, kind: Any, key: str) -> Any:
    """`value` as the type `kind`, which is not a union."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return _check_choice(value, get_args(kind), key)
    if origin in (tuple, list):
        return _check_list(value, kind, key)
    if origin is dict:
        return _check_table(value, kind, key)
    if origin is int:
        return _check_whole(value, key)
    if origin is float:
        return _check_number(value, key)
    if origin is Path and isinstance(value, (str, Path)):
        return Path(value)
    if origin in (bool, str) and isinstance(value, origin):
        return value
    raise _wrong(key, value, _name(kind))


def _check_choice(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    if value not in choices or isinstance(value, bool):
        near = did_you_mean(str(value), map(str, choices)) if isinstance(value, str) else ""
        raise ConfigError(f"{key}: {_shown(value)} is not one of {', '.join(map(str, choices))}{near}")
    return value


def _check_whole(value: Any, key: str) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value) if len(value) < 40 else _MOST
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(key, value, _name(int))
    if not -_MOST <= value < _MOST:
        raise ConfigError(f"{key}: the number does not fit into 64 bits")
    return value


def _check_number(value: Any, key: str) -> float:
    if isinstance(value, str) and value.isascii():  # YAML takes 1e-5 for text
        try:
            value = float(value)
        except ValueError:
            raise _wrong(key, value, _name(float)) from None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(key, value, _name(float))
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        raise ConfigError(f"{key}: the number does not fit into 64 bits")
    if not math.isfinite(value):
        raise ConfigError(f"{key}: {value} is not a finite number")
    return float(value)


def _check_list(value: Any, kind: Any, key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _wrong(key, value, _name(kind))
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is list or kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise _wrong(key, value, f"a list of {len(kinds)}")
    found = [check_value(item, k, key) for item, k in zip(value, kinds, strict=True)]
    return found if origin is list else tuple(found)


def _check_table(value: Any, kind: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(key, value, _name(kind))
    _, inner = get_args(kind)
    for name in value:
        if not isinstance(name, str):
            raise _wrong(key, name, "text, as the names in it must be")
    return {name: check_value(item, inner, f"{key}.{name}") for name, item in value.items()}


def _name(kind: Any) -> str:
    return _NAMES[get_origin(kind) or kind]


def _wrong(key: str, value: Any, wanted: str) -> ConfigError:
    return ConfigError(f"{key}: {_shown(value)} is not {wanted}")


def _shown(value: Any) -> str:
    """A value in quotes, cut short where it is long."""
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    text = value if isinstance(value, str) else _SHORT.repr(value)
    text = text.replace("\0", "\\0")
    return f"'{text[:60]}…'" if len(text) > 61 else f"'{text}'"


def union_members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; a plain type is the only member of itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
