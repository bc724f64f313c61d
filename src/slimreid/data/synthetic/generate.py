"""Writing a synthetic world to disk, in RGBNT201's layout, with several processes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path

from slimreid.console import progress as progress_bar
from slimreid.data.synthetic.identity import Identity, draw_identities
from slimreid.data.synthetic.options import SynthOptions
from slimreid.data.synthetic.render import render_sample
from slimreid.errors import ConfigError, DataError
from slimreid.modalities import NIR, RGB, TIR

SPLIT_FOLDERS = {"train": "train_171", "test": "test"}
MODALITY_FOLDERS = {RGB: "RGB", NIR: "NI", TIR: "TI"}
MASKS, DESCRIPTION = "masks", "world.json"
_QUALITY = 92
_WORK = "painting the world"


def sample_stem(identity: int, camera: int, number: int) -> str:
    """Name of a sample's files without suffix, `000258_cam1_0_00`."""
    return f"{identity:06d}_cam{camera}_0_{number:02d}"


def generate_world(
    out: Path, options: SynthOptions, workers: int | None = None, progress: bool | None = None
) -> int:
    """Write a world below `out` and return the number of samples.

    `workers` processes share the work (default: one per core); `progress` shows a bar (default: on a
    terminal). The folder appears under its name only when it is complete. Raises `DataError` when
    `out` exists and is not empty.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    identities = draw_identities(options)
    tasks = list(product(identities, range(1, options.cameras + 1)))
    count = len(tasks) * options.images_per_camera
    with _complete_or_nothing(Path(out)) as folder:
        for split, modality in product(SPLIT_FOLDERS.values(), MODALITY_FOLDERS.values()):
            (folder / split / modality).mkdir(parents=True)
        for split in SPLIT_FOLDERS.values():
            (folder / MASKS / split).mkdir(parents=True)
        _describe(folder / DESCRIPTION, options, identities)
        _write_all(folder, options, tasks, workers or os.cpu_count() or 1, progress)
    return count


@contextmanager
def _complete_or_nothing(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name when the work succeeded and vanishes otherwise."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is not an empty folder; choose another folder or remove it first")
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            out.rmdir()
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_all(
    folder: Path,
    options: SynthOptions,
    tasks: list[tuple[Identity, int]],
    workers: int,
    progress: bool | None,
) -> None:
    workers = min(workers, len(tasks))
    if workers == 1:
        for task in progress_bar(tasks, _WORK, show=progress):
            _write_samples(folder, options, *task)
        return
    with ProcessPoolExecutor(workers) as pool:
        # Submitted before the bar starts its thread, so that no process is forked beside a running thread.
        futures = [pool.submit(_write_samples, folder, options, *task) for task in tasks]
        try:
            for future in progress_bar(as_completed(futures), _WORK, len(tasks), progress):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_samples(folder: Path, options: SynthOptions, identity: Identity, camera: int) -> None:
    """Render and store all samples of one identity by one camera."""
    split = SPLIT_FOLDERS[identity.split]
    for number in range(options.images_per_camera):
        sample, stem = (
            render_sample(options, identity, camera, number),
            sample_stem(identity.number, camera, number),
        )
        for modality, image in sample.images.items():
            image.save(folder / split / MODALITY_FOLDERS[modality] / f"{stem}.jpg", quality=_QUALITY)
        sample.mask.save(folder / MASKS / split / f"{stem}.png")


def _describe(path: Path, options: SynthOptions, identities: list[Identity]) -> None:
    """Record the options, and which identities share a family, so that errors can be studied later."""
    members = [{"identity": i.number, "split": i.split, "family": i.family} for i in identities]
    text = json.dumps({"options": asdict(options), "identities": members}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
