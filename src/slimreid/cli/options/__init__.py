"""The options of each command, as dataclasses with one line of help per field; none of this needs torch.

A field without a default is an argument (`slimreid evaluate MODEL`), one with a default an option
(`--batch 32`), a yes/no field a flag (`--rerank`). Contradictions are refused at construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from slimreid.config.values import check_least

Feature: TypeAlias = Literal["original", "slimmed", "fused", "both"]
Split: TypeAlias = Literal["train", "val", "query", "gallery"]
Protocol: TypeAlias = Literal["camera", "scene", "none"]
Cameras: TypeAlias = Literal["auto", "same", "other"]

REQUIRED: dict[str, Any] = {"required": True}
"""Metadata of a field that must be given by name (`--model RUN`), not by position."""
HIDDEN: dict[str, Any] = {"hidden": True}
"""Metadata of a field that is filled in from elsewhere and has no option of its own."""
STANDS_FOR = "stands_for"
"""Key in the metadata of an option that is given in place of an argument, which it names."""
NOTE = "note"
"""Key in the metadata of a field that several commands share: what one command adds to the help."""


@dataclass(frozen=True, kw_only=True)
class ModelOption:
    """Commands that take a model; each says whether it must be given."""

    model: Path | None
    """A run, checkpoint, model file or exported model, or the name of a built-in model."""


@dataclass(frozen=True, kw_only=True)
class CameraOption:
    """Commands that embed data whose cameras have names."""

    camera_names: Cameras = "auto"
    """same: cameras named as in training are the training cameras; other: all are unknown; auto: same for
    the run's own data."""


@dataclass(frozen=True, kw_only=True)
class DeviceOption:
    """Commands that compute features."""

    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one. Exported models run on the CPU."""


@dataclass(frozen=True, kw_only=True)
class ThreadsOption:
    """Commands that may run an exported model."""

    threads: int | None = None
    """CPU threads of an exported model; default: all that this process may use."""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Commands that embed many samples."""

    batch: int | None = None
    """Samples per batch; default: as in training."""
    workers: int | None = None
    """Threads that load images; default: as in training."""
    skip_broken: bool = False
    """Leave out samples whose files cannot be read, instead of stopping."""

    def __post_init__(self) -> None:
        check_least(self, 1, "batch")
        check_least(self, 0, "workers")


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """Commands whose output a program may read."""

    json: bool = False
    """Print everything as JSON."""
