"""What a checkpoint holds: `state.json`, under a checksum of its own, and the optimizer as named tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimreid.errors import TrainingError
from slimreid.json_files import Kinds, check_object, json_digest, parse_json
from slimreid.runs.starts import Surroundings

STATE_NAME = "state.json"
FORMAT = 2


_KINDS: Kinds = {
    "epoch": int,
    "step": int,
    "config": dict,
    "dataset": str,
    "surroundings": dict,
    "metrics": dict,
    "best": (dict, type(None)),
    "kept": list,
    "optimizer": dict,
    "scaler": dict,
    "sources": dict,
    "files": dict,
    "checksum": str,
}


@dataclass(frozen=True)
class Best:
    """The best checkpoint so far."""

    epoch: int
    map: float
    split: str


@dataclass(frozen=True)
class FileMark:
    """How long a file was, and what it held."""

    length: int = 0
    """In bytes."""
    sha256: str = hashlib.sha256().hexdigest()


@dataclass
class RunState:
    """Everything about a run at the end of an epoch that is not a tensor."""

    epoch: int
    """Epochs done."""
    step: int
    """Updates done."""
    config: dict[str, Any]
    dataset: str
    """Fingerprint of the manifest."""
    surroundings: Surroundings
    metrics: FileMark
    """The metrics file at that time."""
    best: Best | None = None
    kept: list[int] = field(default_factory=list)
    """Epochs whose checkpoints stay because of train.save_every."""
    optimizer: dict[str, Any] = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the models that the run began from (`init_from`) or follows (`teacher`)."""
    files: dict[str, str] = field(default_factory=dict)
    """Checksums of the other files of the checkpoint, by name."""


@dataclass
class Checkpoint:
    """A checkpoint in memory."""

    state: RunState
    model: dict[str, Tensor]
    training: dict[str, Tensor]


def state_text(state: RunState) -> str:
    """The content of a state file."""
    values = json.loads(json.dumps({"format": FORMAT, **asdict(state)}))
    values["checksum"] = json_digest(values)
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def read_state(folder: Path) -> RunState:
    """The state of a checkpoint; raises `TrainingError` if it cannot be read or was changed."""
    path = folder / STATE_NAME
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path}: cannot be read ({error}); give the folder of a checkpoint") from None
    number = values.get("format") if isinstance(values, dict) else None
    if isinstance(number, int) and number != FORMAT:
        age, cure = ("newer", "update it") if number > FORMAT else ("older", "resume with that one")
        raise TrainingError(f"{path}: written by a {age} SlimReID; {cure}")
    try:
        return _state(check_object(values, {"format": int, **_KINDS}))
    except ValueError as error:
        raise TrainingError(f"{path}: damaged, {error}; resume from another checkpoint") from None


def _state(values: dict[str, Any]) -> RunState:
    """The state that a file describes; raises `ValueError` saying what is wrong with it."""
    unknown = [name for name in values if name not in _KINDS and name != "format"]
    if unknown:
        raise ValueError(f"unknown key '{unknown[0]}'")
    for name, kind in (("best", Best), ("metrics", FileMark), ("surroundings", Surroundings)):
        if values[name] is not None and set(values[name]) != set(kind.__dataclass_fields__):
            raise ValueError(f"'{name}' has other keys")
    if json_digest(values) != values["checksum"]:
        raise ValueError("its checksum is wrong")
    best, rest = values["best"], {n: v for n, v in values.items() if n not in ("format", "checksum")}
    rest["best"] = Best(**best) if best else None
    rest["metrics"] = FileMark(**values["metrics"])
    rest["surroundings"] = Surroundings(**values["surroundings"])
    return RunState(**rest)


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer as named tensors and as plain values for JSON."""
    full = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {"groups": full["param_groups"], "state": {}}
    for number, values in full["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value
            else:
                plain["state"].setdefault(str(number), {})[name] = value
    return tensors, plain


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Put back what `flatten_optimizer` took; raises `TrainingError` when parameters do not match."""
    if not {"groups", "state"} <= plain.keys():
        raise TrainingError("the checkpoint has no state of the optimizer; resume from another checkpoint")
    groups = [dict(group) for group in plain["groups"]]
    now = optimizer.state_dict()["param_groups"]
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in now]:
        raise TrainingError("the checkpoint's optimizer belongs to other parameters; start a new run")
    for group, own in zip(groups, now, strict=True):
        # JSON has no tuples, and which kernel is used is a matter of this machine.
        group |= {key: tuple(group[key]) for key, value in own.items() if isinstance(value, tuple)}
        group |= {key: own[key] for key in ("fused", "foreach") if key in own}
    state: dict[int, dict[str, Any]] = {int(k): dict(v) for k, v in plain["state"].items()}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})
