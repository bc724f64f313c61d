"""What can be enrolled: a manifest, a folder per identity, single files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slimreid.data.importing.modality_names import read_name
from slimreid.data.importing.unlabelled_folder import open_folder
from slimreid.data.manifest import GROUP_COLUMN, MANIFEST_NAME, TIME_COLUMN, ImageRef, Manifest, Sample, Split
from slimreid.errors import ConfigError, DataError
from slimreid.files import IMAGE_SUFFIXES, require_utf8
from slimreid.inference.features.data import read_known
from slimreid.inference.search import KnowsModalities, open_queries
from slimreid.times import parse_time


@dataclass(frozen=True)
class SourceSample:
    """A sample to be enrolled or searched for."""

    images: Mapping[str, ImageRef]
    """Per modality; absolute paths."""
    identity: str = ""
    group: str = ""
    camera: str = ""
    time: float | None = None

    @property
    def name(self) -> str:
        """Its first file, for messages."""
        return next(iter(self.images.values())).path


@dataclass(frozen=True)
class Source:
    """Samples, and how they were found."""

    samples: Sequence[SourceSample]
    kind: str
    """manifest, folder or files."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Labels:
    """What is said of samples that do not say it themselves; None = nothing."""

    identity: str | None = None
    group: str | None = None
    camera: str | None = None
    time: float | None = None
    modality: str | None = None
    """Of images whose path names none."""
    split: Split | None = None
    """Rows of a manifest that count."""


def open_source(
    model: KnowsModalities, place: Path | Sequence[str | Path], labels: Labels | None = None
) -> Source:
    """Samples of a manifest, of a folder, or of image files (`open_queries` says how files belong together).

    In a folder without manifest the first folder below it names the identity and a second one the tracklet;
    images directly in it are of unknown identity. Raises `DataError` or `ConfigError`.
    """
    labels = labels or Labels()
    if isinstance(place, Path):
        require_utf8(place.resolve())
        if not place.exists():
            raise DataError(f"{place}: no such file or folder; give a manifest, a folder or image files")
        if place.is_dir() and not (place / MANIFEST_NAME).is_file():
            return _labelled(_folder(model, place, labels.modality), labels)
        if place.suffix.lower() not in IMAGE_SUFFIXES:
            return _labelled(_manifest(model, place, labels.split), labels)
        place = [place]
    found = open_queries(model, [str(word) for word in place], labels.modality).manifest
    return _labelled(Source([_sample(found, sample) for sample in found.samples], "files"), labels)


def _manifest(model: KnowsModalities, place: Path, split: Split | None) -> Source:
    manifest, unknown = read_known(model.modalities, place)
    chosen = manifest.samples if split is None else manifest.select(split)
    if not chosen:
        raise DataError(f"{place}: no rows of split '{split}'")
    notes = [f"{', '.join(unknown)} is left out: the model does not know it"] if unknown else []
    return Source([_sample(manifest, sample) for sample in chosen], "manifest", tuple(notes))


def _folder(model: KnowsModalities, place: Path, modality: str | None) -> Source:
    found = open_folder(place, model.modalities, modality)
    samples = [_sample(found.manifest, sample) for sample in found.manifest.samples]
    if not any(sample.identity for sample in samples):
        pairs = zip(samples, found.manifest.samples, strict=True)
        samples = [_by_folders(sample, original, model.modalities) for sample, original in pairs]
    return Source(samples, "folder", found.notes)


def _by_folders(sample: SourceSample, original: Sample, modalities: Sequence[str]) -> SourceSample:
    """The sample with the identity and tracklet that its folders name."""
    image = next(iter(original.images.values()))
    identity, *others = read_name(image.path, modalities).key.split("/")
    if not others:
        return sample
    group = "/".join([identity, *others[:-1]]) if len(others) > 1 else ""
    return replace(sample, identity=identity, group=group)


def _sample(manifest: Manifest, sample: Sample) -> SourceSample:
    images = {
        name: replace(ref, path=(manifest.root / ref.path).resolve().as_posix())
        for name, ref in sample.images.items()
    }
    try:
        time = parse_time(sample.extras.get(TIME_COLUMN, ""))
    except ConfigError as error:
        raise DataError(f"{manifest.root / MANIFEST_NAME}: row {sample.row}: {error}") from None
    return SourceSample(images, sample.identity, sample.extras.get(GROUP_COLUMN, ""), sample.camera, time)


def _labelled(source: Source, labels: Labels) -> Source:
    said = {name: getattr(labels, name) for name in ("identity", "group", "camera", "time")}
    given = {name: value for name, value in said.items() if value is not None}
    return replace(source, samples=[replace(sample, **given) for sample in source.samples])
