"""A dataset as a trained model sees it, whether it was trained on it or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slimreid.config import Config
from slimreid.data.manifest import MANIFEST_NAME, LabelEncoder, Manifest, find_manifest, read_manifest
from slimreid.data.manifest.rows import PLAIN_COLUMNS
from slimreid.data.manifest.table import MAX_BYTES, csv_rows
from slimreid.errors import ConfigError, DataError
from slimreid.inference.loaded_model import LoadedModel
from slimreid.modalities import find_modality

Cameras = Literal["auto", "same", "other"]
"""same: cameras named as in training are the training cameras; other: all are unknown; auto: same for the
run's own data."""


@dataclass(frozen=True)
class ModelData:
    """A dataset, cut down to the modalities that a model knows."""

    manifest: Manifest
    path: Path
    """The manifest's file, or the folder of images it was made from."""
    name: str
    own: bool
    """Whether it is the dataset of the model's own run."""
    unknown: tuple[str, ...] = ()
    """Modalities of the dataset that the model does not know."""
    notes: tuple[str, ...] = ()
    """What was guessed or left out when it was opened."""


def open_data(loaded: LoadedModel, path: Path | str | None = None) -> ModelData:
    """Read a manifest for a model; None = the one of its own run.

    Raises `ConfigError` when the run names none, `DataError` when it is not there, is faulty or has none of
    the model's modalities.
    """
    trained_on = loaded.config.data.manifest
    if path is None:
        if not trained_on:
            raise ConfigError(f"{loaded.path}: the model does not say what data it is from; name a manifest")
        path = trained_on
        if not Path(path).exists():
            raise DataError(f"{path}: the data of the run no longer exists; name it with --data")
    file = find_manifest(Path(path))
    own = bool(trained_on) and is_manifest_of(Path(trained_on), file)
    manifest, unknown = read_known(loaded.modalities, file)
    return ModelData(manifest, file, dataset_name(file), own, unknown)


def read_known(modalities: Sequence[str], path: Path) -> tuple[Manifest, tuple[str, ...]]:
    """A manifest (file or folder) cut down to some modalities, and its others; raises `DataError`."""
    file = find_manifest(path)
    given = _path_columns(file)
    known = [name for name in modalities if name in given]
    if not known and given:
        raise DataError(
            f"{file}: it has {', '.join(given)}, but the model knows {', '.join(modalities)} only"
        )
    manifest = read_manifest(file, known or None)
    return manifest, tuple(name for name in given if name not in modalities)


def dataset_name(manifest: Path) -> str:
    """A short name: that of the manifest, or of its folder where the manifest has the usual name."""
    if manifest.name != MANIFEST_NAME:
        return manifest.stem
    return manifest.resolve().parent.name or "data"


def eval_config(
    loaded: LoadedModel,
    data: ModelData,
    batch: int | None = None,
    workers: int | None = None,
    skip_broken: bool | None = None,
) -> Config:
    """The options of the model's run, as far as they fit other data; raises `ConfigError` out of range."""
    config = loaded.config
    windows = {n: w for n, w in (config.data.windows or {}).items() if n in data.manifest.modalities}
    # Everything is read once, so keeping images helps only where training has kept them already.
    cached = data.own and config.data.cache == "disk"
    options = replace(
        config.data,
        windows=windows or None,
        cache="disk" if cached else "none",
        cache_dir=config.data.cache_dir if cached else None,
        workers=config.data.workers if workers is None else workers,
    )
    if skip_broken is not None:
        options = replace(options, on_error="skip" if skip_broken else "raise")
    size = config.batch if batch is None else replace(config.batch, test=batch)
    return replace(config, data=options, batch=size)


def camera_numbers(loaded: LoadedModel, data: ModelData, cameras: Cameras = "auto") -> LabelEncoder:
    """Numbers for names in which only cameras that are those of training get a number of training.

    A model that was adapted knows the cameras of its site, by name, and no others (see `camera_number`).
    """
    book = LabelEncoder.from_manifest(data.manifest, loaded.cameras)
    adapted = loaded.adaptation is not None
    if not adapted and (cameras == "same" or (cameras == "auto" and data.own)):
        return book
    site = loaded.adaptation.cameras if loaded.adaptation is not None else ()
    first = len(loaded.cameras)
    known = {name: first + at for at, name in enumerate(site) if cameras != "other"}
    others = sorted({s.camera for s in data.manifest.samples} - set(known))
    return replace(book, camera=known | {name: first + len(site) + at for at, name in enumerate(others)})


def describe_data(loaded: LoadedModel, data: ModelData, book: LabelEncoder) -> list[str]:
    """What a person should know of how the model and the data fit together."""
    notes = list(data.notes)
    absent = [name for name in loaded.modalities if name not in data.manifest.modalities]
    if absent:
        notes.append(f"the data has no {', '.join(absent)}, which counts as missing")
    if data.unknown:
        notes.append(f"{', '.join(data.unknown)} of the data is left out: the model does not know it")
    cameras = sorted({sample.camera for sample in data.manifest.samples})
    known = len(loaded.cameras)
    if loaded.config.model.camera_embedding:
        strange = [name for name in cameras if book.camera[name] >= known]
        if strange == [""]:
            notes.append("the cameras are unknown, so the mean camera embedding is used")
        elif strange:
            notes.append(f"cameras unknown to the model ({some(strange)}) get the mean camera embedding")
    if loaded.adaptation is not None and loaded.adaptation.cameras:
        last = known + len(loaded.adaptation.cameras)
        others = [name or "no name" for name in cameras if book.camera[name] >= last]
        if others:
            notes.append(
                f"the model was not adapted to these cameras: {some(others)}; they get the mean of the site"
            )
    return notes


def some(names: Sequence[str]) -> str:
    """The first five of some names, for a note."""
    return f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"


def _path_columns(file: Path) -> list[str]:
    """Names of the modalities in a manifest's header; whatever else is wrong with it, reading it will say."""
    try:
        _, names = next(csv_rows(file, MAX_BYTES))
    except DataError:
        return []
    return [find_modality(n) or n for n in names if n and n not in PLAIN_COLUMNS and "_" not in n]


def is_manifest_of(place: Path, file: Path) -> bool:
    """Whether a place, or the manifest in that folder, is a file."""
    place = place / MANIFEST_NAME if place.is_dir() else place
    return place.exists() and place.samefile(file)
