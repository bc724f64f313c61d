"""Whether the value of an old option is of the right kind, judged by its default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slimreid.compat.demo_keys import OLD_KEYS
from slimreid.errors import ConfigError


def check_value(key: str, value: Any) -> Any:
    """The value of a known old option in the type of its default; raises `ConfigError` naming the key."""
    default = OLD_KEYS[key].default
    read, wanted = _OWN_KINDS.get(key) or _kind(default)
    found = read(value)
    if found is _WRONG:
        raise ConfigError(f"{key} is {value!r}; it must be {wanted}, such as {default!r}")
    return found


_WRONG = object()
_Reader = Callable[[Any], Any]


def _kind(default: Any) -> tuple[_Reader, str]:
    """How to read a value like `default`, and what to call its kind."""
    if isinstance(default, tuple):
        return _numbers(len(default)), f"{len(default)} whole numbers"
    return _KINDS[type(default)]


def _flag(value: Any) -> Any:
    return bool(value) if isinstance(value, (bool, int)) and value in (0, 1) else _WRONG


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _WRONG


def _real(value: Any) -> Any:
    if isinstance(value, str):  # YAML 1.1 takes 1e-4 for text
        try:
            value = float(value)
        except ValueError:
            return _WRONG
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return _WRONG
    return value


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _text_or_none(value: Any) -> Any:
    return value if value is None else _text(value)


def _numbers(count: int) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != count:
            return _WRONG
        found = tuple(_whole(v) for v in value)
        return _WRONG if _WRONG in found else found

    return read


def _switch(value: Any) -> Any:
    """`on` and `off`, which YAML 1.1 reads as true and false; compared by identity, since 1 == True."""
    if value is True or value == "on":
        return "on"
    return "off" if value is False or value == "off" else _WRONG


def _channels(value: Any) -> Any:
    """One number per channel; a single one stands for all."""
    if not isinstance(value, (list, tuple)):
        value = (value,) * 3
    found = tuple(_real(v) for v in value)
    return _WRONG if len(found) != 3 or _WRONG in found else found


_KINDS: dict[type, tuple[_Reader, str]] = {
    bool: (_flag, "True or False"),
    int: (_whole, "a whole number"),
    float: (_real, "a number"),
    str: (_text, "text"),
    type(None): (_text_or_none, "text or nothing"),
}
_OWN_KINDS: dict[str, tuple[_Reader, str]] = {
    "MODEL.DIRECT": (_flag, "0 or 1"),
    "MODEL.IF_LABELSMOOTH": (_switch, "'on' or 'off'"),
    "INPUT.PIXEL_MEAN": (_channels, "a number, or one per channel"),
    "INPUT.PIXEL_STD": (_channels, "a number, or one per channel"),
}
