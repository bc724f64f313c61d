"""A dataset with three modalities made from an rgb-only one: `slimreid data simulate`.

The new folder stands on its own: `rgb/` holds copies of the photographs, `nir/` and `tir/` the
simulated images under the same names, and `manifest.csv` the rows of the old manifest.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
import simplejpeg

from slimreid.data.images.decode import crop_box, decode_file
from slimreid.data.manifest import MANIFEST_NAME, Box, ImageRef, Manifest, Sample, Window, write_manifest
from slimreid.data.simulate.images import sample_seed, simulate_modalities
from slimreid.data.workers import worker_pool
from slimreid.errors import ConfigError, DataError
from slimreid.files import new_folder
from slimreid.modalities import NIR, RGB, TIR
from slimreid.progress import progress as progress_bar

SOURCE = RGB
SIMULATED = (NIR, TIR)
ORIGIN = "real rgb, simulated nir/tir"
"""What results on such a set must be called."""

JPEG_QUALITY = 95
_FILES_PER_WORKER = 64


@dataclass(frozen=True)
class _Part:
    """One picture of a file: the whole of it or a box, as seen by one camera."""

    box: Box | None
    camera: str
    name: str
    """Path of the simulated images below their modality's folder."""


@dataclass(frozen=True)
class _Job:
    """One source file with all that is made of it."""

    source: Path
    window: Window | None
    copy: str
    """Path of the copy below the source modality's folder."""
    parts: tuple[_Part, ...]


def simulate_manifest(
    manifest: Manifest, out: Path, seed: int = 0, workers: int | None = None, progress: bool | None = None
) -> Manifest:
    """Write a copy of an rgb-only dataset with simulated nir and tir images into the folder `out`.

    Identities, splits and file names decide nothing about the pixels, and neither does `workers` (by
    default as many processes as there are processors and work for). `progress` None shows a bar on a
    terminal only. The folder appears when it is complete. Returns the new manifest, also written to
    `out/manifest.csv`. Raises `DataError` for a manifest that is not rgb-only, a folder that is not
    empty, or an image that cannot be read, and `ConfigError` for fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    _check_modalities(manifest)
    jobs, names = _plan(manifest)
    samples = tuple(_with_simulated(sample, names) for sample in manifest.samples)
    result = replace(
        manifest,
        samples=samples,
        modalities=(SOURCE, *SIMULATED),
        root=out,
        # A source that says what it is (generated, say) must not be called real.
        origin=f"{manifest.origin}; simulated {'/'.join(SIMULATED)}" if manifest.origin else ORIGIN,
    )
    workers = workers or max(1, min(os.cpu_count() or 1, math.ceil(len(jobs) / _FILES_PER_WORKER)))
    with new_folder(out) as folder:
        done = _results(jobs, folder, seed, workers)
        for _ in progress_bar(done, "simulating nir and tir", len(jobs), progress):
            pass
        write_manifest(result, folder / MANIFEST_NAME)
    return result


def _check_modalities(manifest: Manifest) -> None:
    others = [name for name in manifest.modalities if name != SOURCE]
    if others:
        raise DataError(
            f"{manifest.root}: the manifest already has {', '.join(others)}; only an {SOURCE}-only set "
            f"can be simulated, so drop the other path columns first"
        )
    if SOURCE not in manifest.modalities or not manifest.samples:
        raise DataError(f"{manifest.root}: the manifest has no {SOURCE} images to start from")


def _plan(manifest: Manifest) -> tuple[list[_Job], dict[ImageRef, str]]:
    """One job per file, however many rows show it, and the name of what is made of each image."""
    groups: dict[tuple[str, Window | None], dict[ImageRef, _Part]] = {}
    names: dict[ImageRef, str] = {}
    owners: dict[str, tuple[str, ImageRef | None]] = {}
    for sample in manifest.samples:
        image = sample.images[SOURCE]
        parts = groups.setdefault((image.path, image.window), {})
        if image in parts:
            if parts[image].camera != sample.camera:
                raise DataError(
                    f"{manifest.file(image)}: row {sample.row} says camera '{sample.camera}', an earlier one "
                    f"'{parts[image].camera}'; one photograph has one camera, so correct the manifest"
                )
            continue
        names[image] = _jpeg_name(image)
        parts[image] = _Part(image.box, sample.camera, names[image])
        # All boxes of one file share its copy, but each has simulated images of its own.
        copy, made = f"{SOURCE}/{_mirror(image.path)}", f"{SIMULATED[0]}/{names[image]}"
        for target, owner in ((copy, (image.path, None)), (made, (image.path, image))):
            other, _ = first = owners.setdefault(target.casefold(), owner)
            if first != owner:
                raise DataError(
                    f"{manifest.file(image)}: row {sample.row} would be written to {target}, and so would "
                    f"{manifest.root / other}; rename one of the files"
                )
    jobs = [
        _Job(manifest.root / path, window, _mirror(path), tuple(parts.values()))
        for (path, window), parts in groups.items()
    ]
    return jobs, names


def _mirror(path: str) -> str:
    """A path of the old manifest as a path below a folder of the new set."""
    pure = PurePosixPath(path.replace("\\", "/"))
    kept = [part for part in pure.parts if part not in ("/", "..", ".") and not part.endswith(":")]
    return PurePosixPath(*kept).as_posix()


def _jpeg_name(image: ImageRef) -> str:
    """Name of the simulated JPEG of an image: that of its file, with the box where there is one."""
    name = PurePosixPath(_mirror(image.path))
    if not name.name:
        raise DataError(f"'{image.path}' is not the path of an image; correct it in the manifest")
    is_jpeg = name.suffix.lower() in (".jpg", ".jpeg")
    base, suffix = (name.stem, name.suffix) if is_jpeg else (name.name, ".jpg")
    box = "_" + "_".join(map(str, image.box)) if image.box else ""
    return name.with_name(f"{base}{box}{suffix}").as_posix()


def _with_simulated(sample: Sample, names: dict[ImageRef, str]) -> Sample:
    image = sample.images[SOURCE]
    images = {SOURCE: replace(image, path=f"{SOURCE}/{_mirror(image.path)}")}
    images |= {name: ImageRef(f"{name}/{names[image]}") for name in SIMULATED}
    return replace(sample, images=images)


def _results(jobs: Sequence[_Job], out: Path, seed: int, workers: int) -> Iterator[None]:
    arguments = (jobs, [out] * len(jobs), [seed] * len(jobs))
    if workers == 1:
        yield from map(_simulate_file, *arguments)
        return
    # Fresh processes: a forked one may inherit locks of threads that it does not have.
    with worker_pool(workers, "spawn") as pool:
        yield from pool.map(_simulate_file, *arguments, chunksize=8)


def _simulate_file(job: _Job, out: Path, seed: int) -> None:
    """Copy one photograph and write the simulated images of each of its parts."""
    pixels = decode_file(job.source, job.window)
    copy = out / SOURCE / job.copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(job.source, copy)
    for part in job.parts:
        rgb = np.ascontiguousarray(crop_box(pixels, part.box, job.source))
        modalities = simulate_modalities(rgb, part.camera, sample_seed(seed, part.camera, rgb))
        for name, image in modalities.items():
            path = out / name / part.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(simplejpeg.encode_jpeg(image[..., None], JPEG_QUALITY, "GRAY", "Gray"))
