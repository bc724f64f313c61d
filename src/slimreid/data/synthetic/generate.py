"""Writing a synthetic world to disk, by several processes: images in RGBNT201's layout, masks, a manifest."""

from __future__ import annotations

import json
import os
from concurrent.futures import as_completed
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from slimreid.config.synthetic import SynthOptions
from slimreid.data.importing.datasets import import_layout
from slimreid.data.manifest import MANIFEST_NAME, write_manifest
from slimreid.data.splits import check_share, hold_out_val
from slimreid.data.synthetic.objects.identity import Identity, draw_identities
from slimreid.data.synthetic.render import render_sample
from slimreid.data.workers import worker_pool
from slimreid.errors import ConfigError
from slimreid.files import new_folder
from slimreid.modalities import NIR, RGB, TIR
from slimreid.progress import progress

SPLIT_FOLDERS = {"train": "train_171", "test": "test"}
MODALITY_FOLDERS = {RGB: "RGB", NIR: "NI", TIR: "TI"}
MASKS, DESCRIPTION = "masks", "world.json"
_QUALITY = 92
_WORK = "painting the world"


VAL_IDENTITIES = 0.1
"""Share of the training identities that is held out, unless another is given."""


def make_world(
    out: Path, options: SynthOptions, val_identities: float = VAL_IDENTITIES, workers: int | None = None
) -> int:
    """Generate a world below `out` with its manifest and return the number of samples.

    `workers` processes share the work (default: one per core). The folder appears under its name only when
    it is complete. Raises `ConfigError` for a share out of range and `DataError` when `out` exists and is not
    empty.
    """
    check_share(val_identities)
    with new_folder(out) as folder:
        count = _write_world(folder, options, workers)
        manifest, _ = hold_out_val(import_layout(folder, "rgbnt201").manifest, val_identities)
        write_manifest(replace(manifest, origin=f"synthetic {options.objects}"), folder / MANIFEST_NAME)
    return count


def _write_world(folder: Path, options: SynthOptions, workers: int | None) -> int:
    """Write a world into an empty folder and return the number of samples; see `make_world`."""
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    identities = draw_identities(options)
    tasks = list(product(identities, range(1, options.cameras + 1)))
    for split, modality in product(SPLIT_FOLDERS.values(), MODALITY_FOLDERS.values()):
        (folder / split / modality).mkdir(parents=True)
    for split in SPLIT_FOLDERS.values():
        (folder / MASKS / split).mkdir(parents=True)
    _describe(folder / DESCRIPTION, options, identities)
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    if workers == 1:
        for task in progress(tasks, _WORK):
            _write_samples(folder, options, *task)
    else:
        with worker_pool(workers) as pool:
            # Submitted before the bar starts its thread: no process is forked beside a running thread.
            futures = [pool.submit(_write_samples, folder, options, *task) for task in tasks]
            for future in progress(as_completed(futures), _WORK, len(tasks)):
                future.result()
    return len(tasks) * options.images_per_camera


def _write_samples(folder: Path, options: SynthOptions, identity: Identity, camera: int) -> None:
    """Render and store all samples of one identity by one camera."""
    split = SPLIT_FOLDERS[identity.split]
    for number in range(options.images_per_camera):
        sample = render_sample(options, identity, camera, number)
        stem = f"{identity.number:06d}_cam{camera}_0_{number:02d}"
        for modality, image in sample.images.items():
            image.save(folder / split / MODALITY_FOLDERS[modality] / f"{stem}.jpg", quality=_QUALITY)
        sample.mask.save(folder / MASKS / split / f"{stem}.png")


def _describe(path: Path, options: SynthOptions, identities: list[Identity]) -> None:
    """Record the options, and which identities share a family, so that errors can be studied later."""
    members = [{"identity": i.number, "split": i.split, "family": i.family} for i in identities]
    text = json.dumps({"options": asdict(options), "identities": members}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def is_world(folder: Path, options: SynthOptions) -> bool:
    """Whether `folder` holds a complete world that was made with exactly these options."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    try:
        made = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(made == json.loads(json.dumps(asdict(options))))
