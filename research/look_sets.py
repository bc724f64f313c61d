"""Datasets of the standard test: the held-out identities once per look, each with a manifest of its own.

They lie in a folder whose name changes with the pictures, the rows and the looks, so nothing in it is ever
out of date, and every command of SlimReID works on them: `slimreid evaluate MODEL --data FOLDER/warm`.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import looks
import simplejpeg

from slimreid.data.images.cache import cache_key
from slimreid.data.images.decode import read_images
from slimreid.data.importing.datasets import import_layout
from slimreid.data.manifest import MANIFEST_NAME, ImageRef, Manifest, Sample, read_manifest, write_manifest
from slimreid.data.manifest.table import format_manifest
from slimreid.data.simulate.dataset import simulate_manifest
from slimreid.data.splits import split_flat
from slimreid.errors import DataError
from slimreid.files import new_folder, relative_posix
from slimreid.progress import progress

JPEG_QUALITY = 95
FAST_IMAGES = 1000
"""Rows that are left of a set for quick looks."""


@dataclass(frozen=True)
class Source:
    """Held-out identities as they were photographed."""

    manifest: Manifest
    """Rows of the splits `query` and `gallery`."""
    name: str
    """Short, for tables and folders."""


def open_source(data: Path, identities: str | None = None, *, fast: bool = False) -> Source:
    """The test set of a dataset, or that of the identities `START:STOP` (sorted) of a folder without splits.

    `fast` keeps about `FAST_IMAGES` rows of it, as evenly over identities and cameras as they allow.
    Raises `DataError` or `ConfigError` naming what is wrong.
    """
    manifest = _read(data, identities)
    name = data.resolve().name.removesuffix(".csv")
    if identities is not None:
        name = f"{name}-{identities.replace(':', '-')}"
    if fast:
        manifest, name = manifest.with_samples(thinned(manifest.samples, FAST_IMAGES)), f"{name}-fast"
    return Source(manifest, name)


def _read(data: Path, identities: str | None) -> Manifest:
    if data.is_file() or (data / MANIFEST_NAME).is_file():
        manifest = read_manifest(data)
        manifest = manifest.with_samples(manifest.select("query", "gallery"))
        if identities is not None:
            flat = manifest.with_samples(replace(s, split="train") for s in manifest.samples)
            chosen = {s.identity for s in split_flat(flat, None, identities).samples}
            manifest = manifest.with_samples(s for s in manifest.samples if s.identity in chosen)
    else:
        found = import_layout(data)
        manifest = found.manifest.with_samples(found.manifest.select("query", "gallery"))
        if found.flat:
            if identities is None:
                raise DataError(f"{data}: it has no splits; say who is tested: --identities 600:700")
            manifest = split_flat(found.manifest, None, identities)
    if not manifest.select("query") or not manifest.select("gallery"):
        raise DataError(f"{data}: no queries or no gallery among the identities asked for")
    return manifest


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """About `most` of the samples in order, the same share of each split, spread over identities and cameras.

    Of a split the first samples of every identity and camera are kept, then the second ones, and so on.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    turns: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row, sample in enumerate(samples):
        key = (sample.split, sample.identity, sample.camera)
        turns[sample.split].append((seen[key], row))
        seen[key] += 1
    share = min(1.0, most / len(samples))
    kept = [row for found in turns.values() for _, row in sorted(found)[: round(share * len(found))]]
    return [samples[row] for row in sorted(kept)]


def sets_key(source: Source, *, simulate: bool) -> str:
    """Name of the sets of a source, the same on every machine; another one for other rows or looks."""
    text = "\0".join([looks.version(), format_manifest(source.manifest), str(simulate)])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return "-".join([source.name, *(["simulated"] if simulate else []), digest])


def set_folder(source: Source, cache: Path, *, simulate: bool) -> Path:
    """Where the sets of a source lie: another folder as soon as its files change as well."""
    root, samples = source.manifest.root, source.manifest.samples
    files = sorted({cache_key(root, image) for sample in samples for image in sample.images.values()})
    digest = hashlib.sha256("\0".join(files).encode()).hexdigest()[:4]
    return cache / f"{sets_key(source, simulate=simulate)}-{digest}"


def make_sets(
    source: Source,
    cache: Path,
    names: Sequence[str],
    *,
    simulate: bool = False,
    show_progress: bool | None = None,
) -> dict[str, Path]:
    """The manifest of each look, {name: file}; what is not there yet is made.

    `simulate` adds simulated nir and tir to pictures of visible light. Raises `DataError` for a broken image.
    """
    folder = set_folder(source, cache, simulate=simulate)
    clean = folder / looks.CLEAN / MANIFEST_NAME
    if not clean.is_file():
        if simulate:
            simulate_manifest(source.manifest, clean.parent, progress=show_progress)
        else:
            write_manifest(_moved(source.manifest, clean.parent), clean)
    manifest = read_manifest(clean)
    for name in names:
        if not (folder / name / MANIFEST_NAME).is_file():
            _make(manifest, name, folder / name, show_progress)
    return {name: folder / name / MANIFEST_NAME for name in names}


def sample_key(sample: Sample) -> str:
    """What the draws of a look follow from, on every machine the same."""
    name = PurePosixPath(next(iter(sample.images.values())).path).name
    return "\0".join((sample.identity, sample.camera, name))


def _make(manifest: Manifest, name: str, out: Path, show_progress: bool | None) -> None:
    """Write one set; the folder appears when it is complete."""
    with new_folder(out) as folder:
        written: dict[str, dict[str, ImageRef]] = {}
        for sample in progress(manifest.samples, f"look {name}", len(manifest.samples), show_progress):
            if sample.files_key not in written:
                written[sample.files_key] = dict(_write(manifest, sample, name, folder, len(written)))
        samples = [replace(s, images=written[s.files_key]) for s in manifest.samples]
        origin = f"{manifest.origin or 'photographs'}; look {name}"
        write_manifest(replace(manifest, samples=tuple(samples), origin=origin), folder / MANIFEST_NAME)


def _write(
    manifest: Manifest, sample: Sample, name: str, folder: Path, number: int
) -> Iterator[tuple[str, ImageRef]]:
    """Write the images of one sample under a look; yields where they are."""
    stem = PurePosixPath(next(iter(sample.images.values())).path).stem
    key = sample_key(sample)
    for modality, image in read_images(sample.images, manifest.root).items():
        made = looks.show(name, image, modality=modality, camera=sample.camera, sample=key)
        path = f"{modality}/{number:05d}_{stem}.jpg"
        (folder / modality).mkdir(exist_ok=True)
        (folder / path).write_bytes(simplejpeg.encode_jpeg(made.copy(order="C"), JPEG_QUALITY, "RGB", "444"))
        yield modality, ImageRef(path)


def _moved(manifest: Manifest, folder: Path) -> Manifest:
    """The same manifest for a file in another folder."""

    def moved(image: ImageRef) -> ImageRef:
        return replace(image, path=relative_posix(manifest.root / image.path, folder))

    samples = [replace(s, images={m: moved(i) for m, i in s.images.items()}) for s in manifest.samples]
    return replace(manifest, samples=tuple(samples), root=folder)
