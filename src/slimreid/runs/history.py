"""What a run wrote while it was trained: `metrics.jsonl`, `timing.jsonl` and `selection.jsonl`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimreid.errors import DataError
from slimreid.json_files import Kinds, check_numbers, check_object, read_json_lines

_PARTS = ("val", "test")
_CURE = "only training writes it: restore it, or remove it"


@dataclass(frozen=True)
class EpochTime:
    """How long an epoch took, evaluation included."""

    epoch: int
    seconds: float
    images_per_second: float
    """Of training alone."""


def read_metrics(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Rows of a `metrics.jsonl`; none where it is absent. Raises `DataError` naming the line at fault.

    A row has `kind` (step, epoch), `epoch`, `step`, `train` (named losses) and `lr` (rate of each parameter
    group); one of an epoch also `best` and, where they were evaluated, the figures of `val` and `test`.
    """
    rows = _rows(path, {"kind": str, "epoch": int, "step": int, "train": dict, "lr": dict})
    for number, row in enumerate(rows, start=1):
        try:
            for name in ("train", "lr", *(part for part in _PARTS if part in row)):
                check_numbers(row[name], name)
            if row.get("best") is not None:
                check_object(row["best"], {"epoch": int, "map": float})
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}; {_CURE}") from None
    return tuple(rows)


def read_timing(path: Path) -> tuple[EpochTime, ...]:
    """Rows of a `timing.jsonl`; none where it is absent. Raises `DataError` naming the line at fault."""
    rows = _rows(path, {"epoch": int, "seconds": float, "images_per_second": float})
    return tuple(EpochTime(row["epoch"], row["seconds"], row["images_per_second"]) for row in rows)


def read_selection(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Rows of a `selection.jsonl`; none where it is absent. Raises `DataError` naming the line at fault.

    A row has `epoch` (0 = before training), `stages` (figures of each stage of token reduction) and
    `gradient` (norm of the gradient of the score's parameters at every update). One with `partial` is of an
    epoch that did not come to its end.
    """
    rows = _rows(path, {"epoch": int, "stages": list, "gradient": list})
    for number, row in enumerate(rows, start=1):
        stages = all(isinstance(stage, dict) for stage in row["stages"])
        if not stages or not (row["stages"] or row.get("partial")):
            raise DataError(f"{path}: line {number}: 'stages' has no figures; {_CURE}")
        if not all(norm is None or isinstance(norm, (int, float)) for norm in row["gradient"]):
            raise DataError(f"{path}: line {number}: 'gradient' has something other than numbers; {_CURE}")
    return tuple(rows)


def _rows(path: Path, kinds: Kinds) -> list[dict[str, Any]]:
    try:
        return read_json_lines(path, kinds)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}; {_CURE}") from None


def selection_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of a `selection.jsonl` as lists over epochs, of the last stage: what a result keeps of them.

    `gradient` is the median of each epoch, `gradient_max` the largest; None where there was none.
    """
    whole = [row for row in rows if not row.get("partial")]
    if not whole:
        return {}
    names = ("on_object", "chance", "recall", "iou", "same", "kept_share")
    found: dict[str, Any] = {"epoch": [row["epoch"] for row in whole]}
    found |= {name: [_rounded(row["stages"][-1].get(name)) for row in whole] for name in names}
    norms = [[n for n in row["gradient"] if n is not None] for row in whole]
    found["gradient"] = [_rounded(statistics.median(n)) if n else None for n in norms]
    found["gradient_max"] = [_rounded(max(n)) if n else None for n in norms]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
