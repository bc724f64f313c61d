"""JSON that a user may have edited or a disk may have damaged: what it says, or one short reason why not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

Kinds = Mapping[str, type | tuple[type, ...]]
"""Key -> the type its value must have. `float` takes whole numbers too; neither takes true or false."""

_LARGEST = 2**63 - 1


def parse_json(content: str | bytes) -> Any:
    """What a JSON text says; raises `ValueError` for anything else, however deep, long or badly encoded."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json_lines(path: Path, kinds: Kinds) -> list[dict[str, Any]]:
    """Rows of a file with one JSON object per line; raises `ValueError` naming the line, and `OSError`.

    A last line without its line end is still being written, or was when the writer died: it is left out.
    """
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            rows.append(check_object(parse_json(line), kinds))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return rows


def check_object(values: Any, kinds: Kinds) -> dict[str, Any]:
    """`values`, if they are a JSON object with these keys and types; raises `ValueError` saying what is not.

    Other keys are left alone.
    """
    if not isinstance(values, dict):
        raise ValueError(f"not an object with keys but {shown(values)}")
    for name, kind in kinds.items():
        if name not in values:
            raise ValueError(f"no '{name}'")
        if not _is_kind(values[name], kind):
            raise ValueError(f"'{name}' is {shown(values[name])}")
    return values


def check_numbers(values: Any, name: str) -> dict[str, float]:
    """`values`, if they are {text: number}; raises `ValueError` naming the key that is not."""
    if not isinstance(values, dict):
        raise ValueError(f"'{name}' is {shown(values)}")
    return check_object(values, dict.fromkeys(values, float))


def json_digest(value: Any) -> str:
    """SHA-256 over a JSON value, whatever the order of keys; the `checksum` of an object is left out."""
    if isinstance(value, Mapping):
        value = {name: item for name, item in value.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def shown(value: Any) -> str:
    """A value as errors show it: short, whatever it is."""
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_kind(value: Any, kind: type | tuple[type, ...]) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int):
        return (int in kinds or float in kinds) and abs(value) <= _LARGEST
    return isinstance(value, kinds)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
