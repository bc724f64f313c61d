"""Checkpoints from which a run goes on exactly, whenever it was killed.

    checkpoints/index.json              {"last": "epoch_0003"}, replaced in one stroke
    checkpoints/epoch_0003/
        model.safetensors               weights for use (the moving average if there is one), see `loading`
        training.safetensors            what else training needs: optimizer, weights behind the average
        state.json                      epoch, step, best so far, options, scalars of the optimizer

A folder is complete before the index names it, and old ones are removed only afterwards, so the index
always names a whole checkpoint. No pickle anywhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from slimreid.errors import TrainingError
from slimreid.files import atomic_write, write_text
from slimreid.loading import MODEL_NAME, ModelCard, read_model, write_model

FOLDER = "checkpoints"
INDEX = "index.json"
TRAINING_NAME = "training.safetensors"
STATE_NAME = "state.json"
FORMAT = 1
_FOLDERS = re.compile(r"epoch_\d+|\.epoch_\d+\.tmp")
# What `atomic_write` calls the files that a run writes until they are whole.
_WRITTEN = (MODEL_NAME, INDEX, TRAINING_NAME, STATE_NAME, "config.yaml", "run.json", "result.json")
_UNFINISHED = re.compile(rf"\.({'|'.join(map(re.escape, _WRITTEN))})\.[a-z0-9_]{{8}}\.tmp")


@dataclass(frozen=True)
class Best:
    """The best checkpoint so far."""

    epoch: int
    map: float
    split: str


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
    surroundings: dict[str, Any]
    """What bit-equality depends on besides the config: processes, threads, version of torch, device."""
    metrics_bytes: int
    """Length of the metrics file."""
    best: Best | None = None
    kept: list[int] = field(default_factory=list)
    """Epochs whose checkpoints stay because of train.save_every."""
    optimizer: dict[str, Any] = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the models that the run began from (`start_from`) or follows (`teacher`)."""


@dataclass
class Checkpoint:
    """A checkpoint in memory."""

    state: RunState
    model: dict[str, Tensor]
    training: dict[str, Tensor]


def folder_name(epoch: int) -> str:
    """Name of the folder of a checkpoint after `epoch` epochs."""
    return f"epoch_{epoch:04}"


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
        raise TrainingError("the checkpoint has no state of the optimizer; go on from another checkpoint")
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


class CheckpointStore:
    """The checkpoints of one run, in `run`/checkpoints; only the main process uses it."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER

    def path(self, epoch: int) -> Path:
        """Folder of the checkpoint after `epoch` epochs."""
        return self.folder / folder_name(epoch)

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / INDEX).is_file()

    def last(self) -> Path | None:
        """Folder of the last whole checkpoint, or None; raises `TrainingError` when the index is damaged."""
        if not self.exists:
            return None
        index = self.folder / INDEX
        try:
            return self.folder / str(json.loads(index.read_text(encoding="utf-8"))["last"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(
                f"{index}: damaged ({error}); name the checkpoint instead, --resume {self.folder}/epoch_..., "
                "which also mends it"
            ) from None

    def save(self, checkpoint: Checkpoint, card: ModelCard) -> Path:
        """Write a checkpoint, make it the last, and remove those that are not needed any more."""
        state = checkpoint.state
        folder = self.path(state.epoch)
        temporary = self.folder / f".{folder.name}.tmp"
        for stale in (temporary, folder):  # of a run that was killed here; the index names neither
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            write_model(temporary / MODEL_NAME, checkpoint.model, card)
            content = save({n: t.detach().cpu().contiguous() for n, t in checkpoint.training.items()})
            with atomic_write(temporary / TRAINING_NAME) as file:
                file.write(content)
            text = json.dumps({"format": FORMAT, **asdict(state)}, indent=1, ensure_ascii=False)
            write_text(temporary / STATE_NAME, text + "\n")
            _sync_folder(temporary)
            temporary.replace(folder)
            _sync_folder(self.folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self.point_to(folder)
        self.prune(state)
        return folder

    def point_to(self, folder: Path) -> None:
        """Make `folder` the last checkpoint."""
        write_text(self.folder / INDEX, json.dumps({"last": folder.name}) + "\n")
        _sync_folder(self.folder)

    def needed(self, state: RunState) -> tuple[set[str], set[str]]:
        """Names of the checkpoints to keep, and of those among them to keep whole, to go on from."""
        whole = {folder_name(state.epoch)} | {folder_name(epoch) for epoch in state.kept}
        bests = {state.best.epoch} if state.best else set()
        for name in whole:  # going on from an older checkpoint needs the best of that time
            if (self.folder / name / STATE_NAME).is_file():
                best = read_state(self.folder / name).best
                bests |= {best.epoch} if best else set()
        return whole | {folder_name(epoch) for epoch in bests}, whole

    def prune(self, state: RunState) -> None:
        """Remove checkpoints, and parts of checkpoints, that nothing needs, and what a killed run left."""
        needed, whole = self.needed(state)
        remove_unfinished(self.folder)
        remove_unfinished(self.folder.parent)
        for folder in self.folder.iterdir():
            if not _FOLDERS.fullmatch(folder.name):
                continue
            if folder.is_dir() and folder.name not in needed:
                shutil.rmtree(folder)
            elif folder.is_dir() and folder.name not in whole:
                (folder / TRAINING_NAME).unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of a run that was killed while it wrote, and no others."""
    for path in folder.glob(".*.tmp"):
        if path.is_file() and _UNFINISHED.fullmatch(path.name):
            path.unlink()


def read_state(folder: Path) -> RunState:
    """The state of a checkpoint; raises `TrainingError` if it cannot be read."""
    path = folder / STATE_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path}: cannot be read ({error}); give the folder of a checkpoint") from None
    format_ = values.pop("format", None) if isinstance(values, dict) else None
    if isinstance(format_, int) and format_ > FORMAT:
        raise TrainingError(f"{path}: written by a newer SlimReID; update SlimReID")
    values = {**_NEWER, **values} if isinstance(values, dict) else values
    fault = "no 'format'" if not isinstance(format_, int) else _fault(values)
    if fault:
        raise TrainingError(f"{path}: damaged, {fault}; go on from another checkpoint")
    best = values.pop("best")
    return RunState(**values, best=Best(**best) if best else None)


_STATE_KINDS: dict[str, type | tuple[type, ...]] = {
    "epoch": int,
    "step": int,
    "config": dict,
    "dataset": str,
    "surroundings": dict,
    "metrics_bytes": int,
    "best": (dict, type(None)),
    "kept": list,
    "optimizer": dict,
    "scaler": dict,
    "sources": dict,
}
_NEWER: dict[str, Any] = {"sources": {}}
"""What earlier versions did not write yet, and what it stood at."""


def _fault(values: Mapping[str, Any]) -> str:
    """What is wrong with the values of a state file; '' if nothing."""
    for name in values:
        if name not in _STATE_KINDS:
            return f"unknown key '{name}'"
    for name, kind in _STATE_KINDS.items():
        if name not in values:
            return f"no '{name}'"
        if not isinstance(values[name], kind):
            return f"'{name}' is {values[name]!r}"
    best = values["best"]
    if best is not None and set(best) != set(Best.__dataclass_fields__):
        return f"'best' is {best!r}"
    return ""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint to go on from; raises `TrainingError` or `ModelError` naming the file at fault."""
    state = read_state(folder)
    path = folder / TRAINING_NAME
    if not path.is_file():
        raise TrainingError(
            f"{folder}: has weights for use but no {TRAINING_NAME}, so training cannot go on from here; "
            "give the run's folder to go on from its last checkpoint"
        )
    try:
        training = load_file(path)
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"{path}: cannot be read ({error}); go on from another checkpoint") from None
    model, _ = read_model(folder / MODEL_NAME)
    return Checkpoint(state, model, training)


def _sync_folder(folder: Path) -> None:
    """Make new names in a folder last even if the machine loses power."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
