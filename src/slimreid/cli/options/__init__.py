"""The options of each command, as dataclasses with one line of help per field; none of this needs torch.

A field without a default is an argument (`slimreid evaluate MODEL`), one with a default an option
(`--batch 32`), a yes/no field a flag (`--rerank`). Contradictions are refused at construction.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from slimreid.errors import ConfigError

Feature: TypeAlias = Literal["original", "slimmed", "fused", "both"]
Split: TypeAlias = Literal["train", "val", "query", "gallery"]
Protocol: TypeAlias = Literal["camera", "scene", "none"]
Cameras: TypeAlias = Literal["auto", "same", "other"]

REQUIRED: dict[str, Any] = {"required": True}
"""Metadata of a field that must be given by name (`--model RUN`), not by position."""
HIDDEN: dict[str, Any] = {"hidden": True}
"""Metadata of a field that is filled in from elsewhere and has no option of its own."""


def stands_for(argument: str) -> dict[str, Any]:
    """Metadata of an option that is given in place of an argument and sets it."""
    return {"stands_for": argument}


def check_least(options: object, least: int, *names: str) -> None:
    """Raise `ConfigError` for an option below `least`; None is left alone."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
