"""A dataset and a model so small that whole runs take a second."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from slimreid.config import Config
from slimreid.config.files import load_config
from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import Callback
from slimreid.training.checkpoint.store import CheckpointStore, read_checkpoint
from slimreid.training.loop import train

NAMES = ("rgb", "nir", "tir")
SPLITS = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}
TRAINED = tuple(f"id{identity}" for identity in SPLITS["train"])
"""Training identities of the small set."""
SMALL = (
    "data.workers=0",
    "transforms.height=32",
    "transforms.width=16",
    "transforms.pad=2",
    "batch.num_ids=4",
    "batch.num_instances=2",
    "batch.test=5",
    "model.backbone=nano",
    "optim.lr=1e-3",
    "optim.backbone_lr=1e-3",
    "optim.warmup_epochs=1",
    "train.epochs=2",
)
BATCHES = 3
"""Batches in an epoch: 6 identities × 4 images make 12 groups of 2, 4 groups to a batch."""


def write_set(folder: Path, *, val: bool = True, missing: bool = False, origin: str = "") -> Path:
    """Write the small set of all tests: 6 training, 3 validation and 3 test identities, 2 cameras × 2 images.

    `missing` leaves one modality out of every third sample. Returns the manifest.
    """
    for name in NAMES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows = ["split,identity,camera,scene,rgb,nir,tir" + (",origin" if origin else "")]
    number = 0
    for part, identities in SPLITS.items():
        if part == "val" and not val:
            continue
        for identity in identities:
            for camera in (1, 2):
                for image in range(2):
                    cells = []
                    for m, name in enumerate(NAMES):
                        path = f"{name}/{identity}_{camera}_{image}.png"
                        (folder / path).write_bytes(_image(identity, 100 * number + m))
                        cells.append("" if missing and number % 3 == 0 and number // 3 % 3 == m else path)
                    number += 1
                    splits = ("query", "gallery") if part == "test" else (part,)
                    end = [origin] * bool(origin)
                    rows += [",".join([s, f"id{identity}", str(camera), "", *cells, *end]) for s in splits]
    manifest = folder / "manifest.csv"
    manifest.write_text("\n".join(rows).replace("real rgb, ", "real rgb; ") + "\n", encoding="utf-8")
    return manifest


@cache
def _image(identity: int, seed: int) -> bytes:
    own = np.random.default_rng(identity).integers(0, 256, (4, 2, 3))
    noise = np.random.default_rng(seed).integers(-150, 151, (4, 2, 3))
    pixels = np.clip(own + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((16, 32), Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()


@cache
def _small() -> Config:
    return load_config(overrides=SMALL)


def make_config(manifest: Path, *overrides: str) -> Config:
    """The small config with some options changed; parsed by hand, as the real parser takes a while."""
    pairs = [override.split("=", 1) for override in (f"data.manifest={manifest.as_posix()}", *overrides)]
    return _replaced(_small(), [(key.split("."), text) for key, text in pairs])


def _replaced(options: Any, changes: list[tuple[list[str], str]]) -> Any:
    """All changes at once, so that options which belong together are checked together."""
    values = {}
    for (name, *rest), text in changes:
        if rest:
            values[name] = _replaced(
                getattr(options, name), [(path[1:], t) for path, t in changes if path[0] == name]
            )
            continue
        value = yaml.safe_load(text)
        if isinstance(value, str) and isinstance(getattr(options, name), float):
            value = float(value)  # YAML takes 1e-3 for text
        values[name] = tuple(value) if isinstance(value, list) else value
    return replace(options, **values)


def full_disk(call: int) -> Callable[[int], None]:
    """An `os.fsync` whose `call`-th call finds the disk full."""
    real, calls = os.fsync, count(1)

    def fsync(handle: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    return fsync


def read_metrics(run: Path, kind: str) -> list[dict[str, Any]]:
    """Rows of a run's metrics file."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]


def weights(run: Path, epoch: int = 2) -> dict[str, torch.Tensor]:
    """The model's tensors in a checkpoint of a run."""
    return read_checkpoint(CheckpointStore(RunFolder(run)).path(epoch)).model


def differs(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    """Names of the tensors that are not the same to the last bit."""
    return [name for name in a if not torch.equal(a[name], b[name])]


def contents(run):
    """Everything a run must reproduce: all files but those that hold times, commands or hosts."""
    names = ["model.safetensors", "metrics.jsonl", "result.json", "config.yaml"]
    files = {name: (run / name).read_bytes() for name in names}
    inside = sorted(p for p in (run / "checkpoints").rglob("*") if p.is_file())
    return files | {p.relative_to(run).as_posix(): p.read_bytes() for p in inside}


class StopAt(Callback):
    """Ctrl-C after an update."""

    def __init__(self, step):
        self.at = step

    def step(self, report):
        if report.step == self.at:
            raise KeyboardInterrupt


def interrupted(config, output, step):
    with pytest.raises(KeyboardInterrupt):
        train(config, output, "auto", [StopAt(step)])
