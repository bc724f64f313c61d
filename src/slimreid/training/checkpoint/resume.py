"""Resuming a run: which checkpoint is meant, and whether it may be continued as asked."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slimreid.config.files import without_removed
from slimreid.errors import ConfigError, TrainingError
from slimreid.inference.model_card import MODEL_NAME
from slimreid.runs.folder import RunFolder
from slimreid.runs.identity import FREE_KEYS, ROUNDING_KEYS, changed_keys, flat_options
from slimreid.runs.starts import Surroundings
from slimreid.training.checkpoint.state import STATE_NAME, Checkpoint, FileMark, RunState
from slimreid.training.checkpoint.store import CheckpointStore, copy_checkpoint, read_checkpoint

logger = logging.getLogger(__name__)

AUTO, NEVER = "auto", "never"
INIT_FROM, TEACHER = "init_from", "teacher"


def find_checkpoint(resume: str, run: RunFolder) -> Path | None:
    """The checkpoint to go on from; None = start anew.

    Args:
        resume: `auto`: the last one of `run`, if any. `never`: none. Otherwise the folder of a checkpoint or
            of a run.
        run: Where the training writes.

    Raises:
        ConfigError: The folder holds something that would be overwritten, or there is no checkpoint.
        TrainingError: The index of the checkpoints is damaged.
    """
    store = CheckpointStore(run)
    if resume == NEVER and store.exists:
        raise ConfigError(
            f"{run.path} holds a run already; add --resume auto to resume it, or choose another --out"
        )
    if resume in (AUTO, NEVER):
        found = store.last()
        if found is None:
            _refuse_overwriting(run)
        return found
    given = Path(resume)
    if not given.is_dir():
        raise ConfigError(f"--resume '{resume}': give auto, never, or the folder of a run or checkpoint")
    found = given if (given / STATE_NAME).is_file() else CheckpointStore(RunFolder(given)).last()
    if found is None:
        raise ConfigError(f"--resume {given}: no checkpoint in this folder")
    if found.parent.resolve() != store.folder.resolve():
        if store.exists:
            raise ConfigError(f"{run.path} holds another run already; choose another --out")
        _refuse_overwriting(run)
    return found


def _refuse_overwriting(run: RunFolder) -> None:
    """Raise `ConfigError` where a new run would overwrite a trained model or a file that is not a run's."""
    for path in (run.model_file, run.result_file):
        if path.exists():
            raise ConfigError(
                f"{path} is there but no checkpoint to resume from: a new run would overwrite it; choose "
                "another --out, or remove it"
            )
    if run.config_file.exists() and not run.starts_file.exists():
        raise ConfigError(f"{run.config_file} is there and not of a run; choose another --out, or move it")


def check_same_run(state: RunState, config: Mapping[str, Any], dataset: str) -> None:
    """Raise `ConfigError` naming every option that must not change; warn of those that change rounding."""
    changed = changed_keys(without_removed(flat_options(state.config)), flat_options(config))
    changed = {key: text for key, text in changed.items() if key not in FREE_KEYS}
    refused = [text for key, text in changed.items() if key not in ROUNDING_KEYS]
    if refused:
        raise ConfigError(
            "a run cannot be resumed with other options:\n  "
            + "\n  ".join(refused)
            + "\nput them back, or start a new run with another --out"
        )
    if state.dataset != dataset:
        raise ConfigError(
            "the manifest's rows have changed since the run began; put them back, or start a new run with "
            "another --out"
        )
    for text in changed.values():
        logger.warning("%s; the result will not be bit-identical", text)


def check_same_sources(state: RunState, now: Mapping[str, str]) -> dict[str, str]:
    """What the run began from and follows, by fingerprint; raises `ConfigError` for another teacher.

    `now` names the teacher that is there now; the model it began from is not looked at any more.
    """
    if state.sources.get(TEACHER) != now.get(TEACHER):
        raise ConfigError(
            "train.teacher is not the model that this run has followed so far; give that one, or start a new "
            "run with another --out"
        )
    return dict(state.sources)


def check_surroundings(state: RunState, now: Surroundings) -> None:
    """Warn when something besides the options changed on which bit-equality depends."""
    before = asdict(state.surroundings)
    for key, value in asdict(now).items():
        if before[key] != value:
            logger.warning(
                "%s: %r before, %r now; the result will not be bit-identical", key, before[key], value
            )


def check_metrics(path: Path, mark: FileMark) -> None:
    """Raise `TrainingError` unless a metrics file begins with what it held at the checkpoint."""
    content = path.read_bytes()[: mark.length] if path.is_file() else b""
    if len(content) < mark.length:
        there = f"has {len(content)} bytes" if path.is_file() else "is missing"
        fault = f"{there}, but had {mark.length} bytes at the checkpoint"
    elif hashlib.sha256(content).hexdigest() != mark.sha256:
        fault = "was changed since the checkpoint"
    else:
        return
    raise TrainingError(
        f"{path}: {fault}; put it back. Without it this run cannot be resumed, but a new one can begin from "
        "its weights with train.init_from"
    )


def adopt(source: Path, run: RunFolder) -> Checkpoint:
    """Read a checkpoint and make it the last one of `run`, with the metrics up to it.

    A checkpoint of another run is copied, together with the best one of its time. Raises `TrainingError` or
    `ModelError` before anything is written when a file of it is damaged or gone.
    """
    checkpoint = read_checkpoint(source)
    store = CheckpointStore(run)
    state = checkpoint.state
    own = source.parent.resolve() == store.folder.resolve()
    origin = run if own else _run_of(source)
    check_metrics(origin.metrics_file, state.metrics)
    best = source.parent / store.path(state.best.epoch).name if state.best else source
    if not (best / MODEL_NAME).is_file():
        raise TrainingError(f"{best}: the best checkpoint of the run is missing")
    if not own:
        copy_checkpoint(source, store.path(state.epoch))
        if best != source:
            copy_checkpoint(best, store.folder / best.name)
        for before, after in (
            (origin.metrics_file, run.metrics_file),
            (origin.timing_file, run.timing_file),
        ):
            if before.is_file():
                shutil.copyfile(before, after)
        state.kept = [epoch for epoch in state.kept if epoch == state.epoch]
    store.point_to(store.path(state.epoch))
    store.prune(state)  # a run may have been killed before it did
    return checkpoint


def _run_of(checkpoint: Path) -> RunFolder:
    """The run that the folder of a checkpoint belongs to."""
    parent = checkpoint.resolve().parent
    run = RunFolder(parent.parent)
    return run if run.checkpoints == parent else RunFolder(parent)
