"""Checks that option types share: words of a fixed set, numbers in a range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from slimreid.errors import ConfigError
from slimreid.names import did_you_mean


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


def check_range(key: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise `ConfigError` unless low ≤ value ≤ high, or low < value with `open_low`."""
    if not (low < value if open_low else low <= value) or not value <= high:
        raise ConfigError(f"{key}: {value} is not in {'(' if open_low else '['}{low:g}, {high:g}]")


@cache
def _words(kind: Any) -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(kind)
    named = ((field.name, hints[field.name]) for field in fields(kind))
    return {name: get_args(hint) for name, hint in named if get_origin(hint) is Literal}
