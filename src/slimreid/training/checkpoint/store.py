"""Checkpoints from which a run goes on exactly, whenever it was killed.

    checkpoints/index.json              {"last": "epoch_0003"}, replaced in one stroke
    checkpoints/epoch_0003/
        model.safetensors               weights for use (the moving average if there is one)
        training.safetensors            what else training needs: optimizer, weights behind the average
        state.json                      epoch, step, best so far, options, scalars of the optimizer, checksums

A folder takes its name only when it is complete, and old ones are removed only after the index names it, so
the index always names a whole checkpoint. No pickle anywhere.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save

from slimreid.errors import ModelError, TrainingError
from slimreid.files import atomic_write, write_text
from slimreid.inference.model_card import MODEL_NAME, ModelCard
from slimreid.inference.trained_model import read_model, write_model
from slimreid.json_files import check_object, parse_json
from slimreid.runs.folder import RunFolder
from slimreid.training.checkpoint.state import STATE_NAME, Checkpoint, RunState, read_state, state_text

logger = logging.getLogger(__name__)

INDEX = "index.json"
TRAINING_NAME = "training.safetensors"
_FILES = (MODEL_NAME, TRAINING_NAME, STATE_NAME)
_FOLDERS = re.compile(r"epoch_\d+|\.epoch_\d+\.tmp")


def folder_name(epoch: int) -> str:
    """Name of the folder of a checkpoint after `epoch` epochs."""
    return f"epoch_{epoch:04}"


class CheckpointStore:
    """The checkpoints of one run; only the main process uses it."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.folder = run, run.checkpoints

    def path(self, epoch: int) -> Path:
        """Folder of the checkpoint after `epoch` epochs."""
        return self.folder / folder_name(epoch)

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / INDEX).is_file() or bool(self._whole())

    def last(self) -> Path | None:
        """Folder of the last whole checkpoint, or None; raises `TrainingError` when the index is damaged."""
        index = self.folder / INDEX
        if not index.is_file():
            whole = self._whole()
            if whole:
                logger.warning("%s is missing; the last whole checkpoint is %s", index, whole[-1].name)
            return whole[-1] if whole else None
        try:
            values = check_object(parse_json(index.read_bytes()), {"last": str})
            return self.folder / str(values["last"])
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{index}: damaged ({error}); name the checkpoint instead, --resume {self.folder}/epoch_..., "
                "which also repairs it"
            ) from None

    def _whole(self) -> list[Path]:
        """Folders of checkpoints to resume from, oldest first; they get their names when complete."""
        found = [path for path in self.folder.glob("epoch_*") if _FOLDERS.fullmatch(path.name)]
        whole = [path for path in found if all((path / name).is_file() for name in _FILES)]
        return sorted(whole, key=lambda path: int(path.name.removeprefix("epoch_")))

    def save(self, checkpoint: Checkpoint, card: ModelCard) -> Path:
        """Write a checkpoint, make it the last, and remove those that are not needed any more."""
        state = checkpoint.state
        folder = self.path(state.epoch)
        temporary = self.folder / f".{folder.name}.tmp"
        for stale in (temporary, folder):  # of a run that was killed here; the index names neither
            shutil.rmtree(stale, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            weights = write_model(temporary / MODEL_NAME, checkpoint.model, card)
            content = save({n: t.detach().cpu().contiguous() for n, t in checkpoint.training.items()})
            with atomic_write(temporary / TRAINING_NAME) as file:
                file.write(content)
            sums = {MODEL_NAME: weights, TRAINING_NAME: hashlib.sha256(content).hexdigest()}
            write_text(temporary / STATE_NAME, state_text(replace(state, files=sums)))
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
        """Names of the checkpoints to keep, and of those among them to keep whole, to resume from."""
        whole = {folder_name(state.epoch)} | {folder_name(epoch) for epoch in state.kept}
        bests = {state.best.epoch} if state.best else set()
        for name in whole:  # resuming from an older checkpoint needs the best of that time
            if (self.folder / name / STATE_NAME).is_file():
                best = read_state(self.folder / name).best
                bests |= {best.epoch} if best else set()
        return whole | {folder_name(epoch) for epoch in bests}, whole

    def prune(self, state: RunState) -> None:
        """Remove checkpoints, and parts of checkpoints, that nothing needs, and what a killed run left."""
        needed, whole = self.needed(state)
        run = self.run
        remove_unfinished(self.folder, (INDEX,))
        written = (run.model_file, run.config_file, run.starts_file, run.result_file)
        remove_unfinished(run.path, [path.name for path in written])
        for folder in self.folder.iterdir():
            if not _FOLDERS.fullmatch(folder.name):
                continue
            if folder.is_dir() and folder.name not in needed:
                shutil.rmtree(folder)
            elif folder.is_dir() and folder.name not in whole:
                (folder / TRAINING_NAME).unlink(missing_ok=True)


def remove_unfinished(folder: Path, names: Sequence[str]) -> None:
    """Remove what `atomic_write` left of these files when it was killed, and nothing else."""
    unfinished = re.compile(rf"\.({'|'.join(map(re.escape, names))})\.[a-z0-9_]{{8}}\.tmp")
    for path in folder.glob(".*.tmp"):
        if path.is_file() and unfinished.fullmatch(path.name):
            path.unlink()


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy the files of a checkpoint."""
    target.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint to resume from; raises `TrainingError` or `ModelError` naming the file at fault."""
    state = read_state(folder)
    path = folder / TRAINING_NAME
    if not path.is_file():
        raise TrainingError(
            f"{folder}: has weights for use but no {TRAINING_NAME}, so training cannot continue from here; "
            "give the run's folder to continue from its last checkpoint"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != state.files.get(TRAINING_NAME):
        raise TrainingError(
            f"{path}: damaged, its checksum is not that of {STATE_NAME}; resume from another checkpoint"
        )
    try:
        training = load(content)
    except SafetensorError as error:
        raise TrainingError(f"{path}: cannot be read ({error}); resume from another checkpoint") from None
    model, header = read_model(folder / MODEL_NAME)
    if header["fingerprint"] != state.files.get(MODEL_NAME):
        raise ModelError(f"{folder / MODEL_NAME}: not the weights that {STATE_NAME} belongs to")
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
