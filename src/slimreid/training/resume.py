"""Going on with a run: which checkpoint is meant, and whether it may be continued as asked."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slimreid.config import Config
from slimreid.config_io import BEFORE, without_removed
from slimreid.data.manifest import Manifest
from slimreid.errors import ConfigError, TrainingError
from slimreid.loading import MODEL_NAME
from slimreid.training.checkpoint import (
    FOLDER,
    STATE_NAME,
    TRAINING_NAME,
    Checkpoint,
    CheckpointStore,
    RunState,
    read_checkpoint,
)

logger = logging.getLogger(__name__)

AUTO, NEVER = "auto", "never"
METRICS_NAME = "metrics.jsonl"
TIMING_NAME = "timing.jsonl"
START_FROM, TEACHER = "start_from", "teacher"

FREE_KEYS = frozenset(
    {
        "data.manifest",  # its content is compared instead
        "data.workers",
        "data.cache",
        "data.cache_dir",
        "model.pretrained",  # read at the very beginning only
        "train.start_from",  # the same
        "train.teacher",  # its weights are compared instead
        "train.save_every",
        "train.watch_selection",  # looks on only
        "train.keep",
    }
)
"""Options that may change between start and resume; the result stays the same to the last bit."""

ROUNDING_KEYS = frozenset({"train.threads", "train.compile", "model.checkpointing", "batch.test"})
"""Options that may change too, with a warning: sums are then rounded differently."""


def dataset_fingerprint(manifest: Manifest) -> str:
    """SHA-256 over everything a manifest says that a run depends on, wherever it lies."""
    rows = [
        [s.split, s.identity, s.camera, s.scene]
        + [[name, image.path, image.box, image.window] for name, image in sorted(s.images.items())]
        for s in manifest.samples
    ]
    text = json.dumps([manifest.modalities, manifest.protocol, rows])
    return hashlib.sha256(text.encode()).hexdigest()


def find_checkpoint(resume: str, output: Path) -> Path | None:
    """The checkpoint to go on from; None = start anew. Raises `ConfigError` or `TrainingError`.

    `auto`: the last one in `output`, if any. `never`: none, and `output` must not hold a run already.
    Otherwise the folder of a checkpoint or of a run.
    """
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output {output} is a file; give the folder of a run, new or old")
    store = CheckpointStore(output)
    if resume == AUTO:
        return store.last()
    if resume == NEVER:
        if store.exists:
            raise ConfigError(
                f"{output} holds a run already; add --resume auto to go on with it, or choose another "
                "--output"
            )
        return None
    given = Path(resume)
    if not given.is_dir():
        raise ConfigError(f"--resume '{resume}': give auto, never, or the folder of a run or checkpoint")
    found = given if (given / STATE_NAME).is_file() else CheckpointStore(given).last()
    if found is None:
        raise ConfigError(f"--resume {given}: no checkpoint in this folder")
    if store.exists and found.parent.resolve() != store.folder.resolve():
        raise ConfigError(f"{output} holds another run already; choose another --output")
    return found


def check_same_run(state: RunState, config: Mapping[str, Any], dataset: str) -> None:
    """Raise `ConfigError` naming every option that must not change; warn of those that change rounding."""
    # An option that did not exist when the run began had the effect of its default, unless we know better.
    old = flat_options(asdict(Config())) | BEFORE | flat_options(without_removed(state.config))
    new = flat_options(config)
    changed = {
        key: f"{key}: {old.get(key)!r} before, {new.get(key)!r} now"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key) and key not in FREE_KEYS
    }
    refused = [text for key, text in changed.items() if key not in ROUNDING_KEYS]
    if refused:
        raise ConfigError(
            "a run cannot go on with other options:\n  "
            + "\n  ".join(refused)
            + "\nput them back, or start a new run with another --output"
        )
    if state.dataset != dataset:
        raise ConfigError(
            "the manifest's rows have changed since the run began; put them back, or start a new run with "
            "another --output"
        )
    for text in changed.values():
        logger.warning("%s; the result will not be equal to the last bit", text)


def check_same_sources(state: RunState, now: Mapping[str, str]) -> dict[str, str]:
    """What the run began from and follows, by fingerprint; raises `ConfigError` for another teacher.

    `now` names the teacher that is there now; the model it began from is not looked at any more.
    """
    if state.sources.get(TEACHER) != now.get(TEACHER):
        raise ConfigError(
            "train.teacher is not the model that this run has followed so far; give that one, or start a new "
            "run with another --output"
        )
    return dict(state.sources)


def check_surroundings(state: RunState, now: Mapping[str, Any]) -> None:
    """Warn when something besides the options changed on which bit-equality depends."""
    for key, value in now.items():
        if state.surroundings.get(key) != value:
            logger.warning(
                "%s: %r before, %r now; the result will not be equal to the last bit",
                key,
                state.surroundings.get(key),
                value,
            )


def adopt(source: Path, output: Path) -> Checkpoint:
    """Read a checkpoint and make it the last one of `output`, with the metrics up to it.

    A checkpoint of another run is copied, together with the best one of its time.
    """
    checkpoint = read_checkpoint(source)
    store = CheckpointStore(output)
    state = checkpoint.state
    if source.parent.resolve() != store.folder.resolve():
        _copy(source, store.path(state.epoch))
        if state.best and state.best.epoch != state.epoch:
            best = source.parent / store.path(state.best.epoch).name
            if not best.is_dir():
                raise TrainingError(f"{source}: the best checkpoint of its time, {best}, is gone")
            _copy(best, store.path(state.best.epoch))
        origin = source.parent.parent if source.parent.name == FOLDER else source.parent
        for name in (METRICS_NAME, TIMING_NAME):
            if (origin / name).is_file():
                shutil.copyfile(origin / name, output / name)
        state.kept = [epoch for epoch in state.kept if epoch == state.epoch]
    if state.best and not (store.path(state.best.epoch) / MODEL_NAME).is_file():
        raise TrainingError(f"{store.path(state.best.epoch)}: the best checkpoint of the run is gone")
    store.point_to(store.path(state.epoch))
    store.prune(state)  # a run may have been killed before it did
    return checkpoint


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in (MODEL_NAME, TRAINING_NAME, STATE_NAME):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def flat_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options as one dict of dotted keys, tuples as lists."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping) and not f"{prefix}{key}".startswith("data.windows"):
            flat |= flat_options(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.loads(json.dumps(value))
    return flat
