"""What a manifest consists of (images, samples, splits, protocols), and how its columns say it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from slimreid.data.problems import Problem
from slimreid.errors import DataError, nearest_names
from slimreid.files import natural_key
from slimreid.modalities import MODALITIES, declare, find_modality, order

Split = Literal["train", "val", "query", "gallery"]
Protocol = Literal["camera", "scene", "none"]
Box = tuple[int, int, int, int]
Window = tuple[float, float]

SPLITS: tuple[Split, ...] = get_args(Split)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
MANIFEST_NAME = "manifest.csv"
GROUP_COLUMN, TIME_COLUMN = "x_group", "x_time"
"""Columns that enrolling reads: tracklet of a sample; when it was seen (ISO 8601, or seconds since 1970)."""


REQUIRED = ("split", "identity", "camera")
PLAIN_COLUMNS = (*REQUIRED, "scene", "protocol", "origin")
_PATH, _BOX, _WINDOW = "", "box", "window"


@dataclass(frozen=True)
class ImageRef:
    """Where one image is: a file, and optionally the part of it and the range of values that count."""

    path: str
    box: Box | None = None
    window: Window | None = None


def images_to_json(images: Mapping[str, ImageRef]) -> str:
    """The images of a sample as text: {modality: {path, box, window}}."""
    return json.dumps({name: vars(image) for name, image in images.items()}, ensure_ascii=False)


def images_from_json(text: str) -> dict[str, ImageRef]:
    """What `images_to_json` wrote; galleries of earlier versions have [path, box, window]."""
    found = {}
    for name, values in json.loads(text).items():
        path, box, window = values.values() if isinstance(values, dict) else values
        found[name] = ImageRef(path, tuple(box) if box else None, tuple(window) if window else None)
    return found


@dataclass(frozen=True)
class Sample:
    """One row: an object seen once, in one or more modalities."""

    split: Split
    identity: str
    camera: str
    scene: str
    images: Mapping[str, ImageRef]
    extras: Mapping[str, str] = field(default_factory=dict)
    row: int = field(default=0, compare=False)

    @property
    def files_key(self) -> str:
        """The same for two rows that are the same images."""
        return repr(sorted((name, image.path, image.box) for name, image in self.images.items()))


@dataclass(frozen=True)
class Manifest:
    """A whole dataset: its rows, the modalities they may have, and the folder paths start from."""

    samples: tuple[Sample, ...]
    modalities: tuple[str, ...]
    root: Path = field(compare=False)
    protocol: Protocol = "camera"
    origin: str = ""

    def select(self, *splits: Split) -> tuple[Sample, ...]:
        """Rows of the given splits, in order."""
        return tuple(s for s in self.samples if s.split in splits)

    def file(self, image: ImageRef) -> Path:
        """The file behind an image."""
        return self.root / image.path

    def with_samples(self, samples: Iterable[Sample]) -> Manifest:
        """The same dataset with other rows."""
        return replace(self, samples=tuple(samples))


class _CellError(Exception):
    """A cell that cannot be used: (message, cure)."""


@dataclass(frozen=True)
class Columns:
    """Which column of a header means what."""

    paths: Mapping[str, str]
    """Modality -> name of its path column as written in the file."""
    boxes: Mapping[str, str]
    windows: Mapping[str, str]
    extras: tuple[str, ...]

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that have a path column, in canonical order."""
        return order(self.paths)

    @classmethod
    def from_header(cls, path: Path, header: Sequence[str], modalities: Sequence[str] | None) -> Columns:
        """Understand a header; `modalities` chooses some of its path columns or declares new names.

        Raises `DataError` with the file and the column that is missing, unknown or there twice.
        """
        _check_names(path, header)
        wanted = declare(modalities) if modalities else None
        kinds: dict[str, dict[str, str]] = {_PATH: {}, _BOX: {}, _WINDOW: {}}
        for column in header:
            if column in PLAIN_COLUMNS or column.startswith("x_"):
                continue
            base, _, kind = column.partition("_")
            name = find_modality(base) or (base if wanted and base in wanted else None)
            if name is None and wanted is not None and kind in kinds:
                continue  # a modality that was not asked for
            if name is None or kind not in kinds:
                raise DataError(_unknown_column(path, column))
            if name in kinds[kind]:
                raise DataError(f"{path}: columns '{kinds[kind][name]}' and '{column}' are the same")
            if wanted is None or name in wanted:
                kinds[kind][name] = column
        _check_paths(path, header, kinds, wanted)
        extras = tuple(column for column in header if column.startswith("x_"))
        return cls(kinds[_PATH], kinds[_BOX], kinds[_WINDOW], extras)

    def sample(self, row: Mapping[str, str], number: int) -> Sample | Problem:
        """The row as a sample, or what is wrong with it."""
        cells = {name: cell.strip() for name, cell in row.items()}
        try:
            for name in REQUIRED:
                if not cells[name]:
                    raise _CellError(f"'{name}' is empty", f"fill in the {name} or drop the row")
            split = _split(cells["split"])
            images = {name: self._image(name, cells) for name in self.modalities if cells[self.paths[name]]}
            if not images:
                raise _CellError("no image at all", "give at least one path or drop the row")
        except _CellError as fault:
            message, cure = fault.args
            return Problem("error", number, message, cure, cure)
        extras = {name: cells[name] for name in self.extras}
        scene = cells.get("scene", "")
        return Sample(split, cells["identity"], cells["camera"], scene, images, extras, number)

    def _image(self, name: str, cells: Mapping[str, str]) -> ImageRef:
        location = cells[self.paths[name]].replace("\\", "/")
        box = _box(name, cells.get(self.boxes.get(name, ""), ""))
        window = _window(name, cells.get(self.windows.get(name, ""), ""))
        return ImageRef(location, box, window)


def _check_names(path: Path, header: Sequence[str]) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column {repeated[0]!r} appears twice; remove or rename one")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        near = nearest_names(missing[0], header)
        hint = f" (is '{near[0]}' meant?)" if near else ""
        raise DataError(f"{path}: no column '{missing[0]}'{hint}; the header is {','.join(header)}")


def _check_paths(
    path: Path,
    header: Sequence[str],
    kinds: Mapping[str, Mapping[str, str]],
    wanted: tuple[str, ...] | None,
) -> None:
    """Every modality that is wanted, boxed or windowed has a column of paths."""
    absent = [name for name in wanted or () if name not in kinds[_PATH]]
    if absent or not kinds[_PATH]:
        what = absent[0] if absent else next(iter(MODALITIES))
        raise DataError(f"{path}: no path column '{what}'; the header is {','.join(header)}")
    for kind in (_BOX, _WINDOW):
        for name, column in kinds[kind].items():
            if name not in kinds[_PATH]:
                raise DataError(f"{path}: column '{column}' has no path column '{name}' to go with")


def _unknown_column(path: Path, column: str) -> str:
    known = [*PLAIN_COLUMNS, *(f"{m}{s}" for m in MODALITIES for s in ("", "_box", "_window"))]
    near = nearest_names(column, known)
    hint = f"did you mean '{near[0]}'? Otherwise " if near else ""
    return (
        f"{path}: unknown column '{column}'; {hint}write 'x_{column}' to carry it along unread, "
        f"or declare a new modality with --modalities (in a config: data.modalities)"
    )


def _split(word: str) -> Split:
    split = next((s for s in SPLITS if s == word), None)
    if split is None:
        near = nearest_names(word, SPLITS)
        cure = f"write '{near[0]}'" if near else f"use one of {', '.join(SPLITS)}"
        raise _CellError(f"unknown split '{word}'", cure)
    return split


def _box(name: str, text: str) -> Box | None:
    values = _numbers(name, text, 4)
    if values is None:
        return None
    left, top, right, bottom = values
    whole = all(value.is_integer() for value in values)
    if not (whole and 0 <= left < right and 0 <= top < bottom):
        cure = "write 'left top right bottom' in whole pixels"
        raise _CellError(f"box of '{name}' is empty, negative or broken", cure)
    return int(left), int(top), int(right), int(bottom)


def _window(name: str, text: str) -> Window | None:
    values = _numbers(name, text, 2)
    if values is None:
        return None
    low, high = values
    if not low < high:
        raise _CellError(f"window of '{name}' is empty", "write 'low high' with low below high")
    return low, high


def _numbers(name: str, text: str, count: int) -> tuple[float, ...] | None:
    if not text:
        return None
    try:
        values = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        values = ()
    if len(values) != count or not all(map(math.isfinite, values)):
        cure = "a box is 'left top right bottom', a window 'low high'"
        raise _CellError(f"'{name}': '{text}' is not {count} numbers", cure)
    return values


@dataclass(frozen=True)
class LabelEncoder:
    """Name -> number, in the order of the numbers; names seen in training come first."""

    identity: dict[str, int]
    camera: dict[str, int]
    num_classes: int
    """Identities that are trained on: labels 0 … num_classes − 1."""
    num_cameras: int
    """Cameras seen in training; a larger number is a camera the model does not know."""

    @classmethod
    def from_manifest(cls, manifest: Manifest, cameras: Sequence[str] = ()) -> LabelEncoder:
        """Number everything in a manifest; `cameras` known to a trained model keep their numbers."""
        train, everything = manifest.select("train"), manifest.samples
        classes = _sorted(s.identity for s in train)
        known = tuple(cameras) or _sorted(s.camera for s in train)
        return cls(
            identity=_number(classes, (s.identity for s in everything)),
            camera=_number(known, (s.camera for s in everything)),
            num_classes=len(classes),
            num_cameras=len(known),
        )

    @property
    def trained_identities(self) -> tuple[str, ...]:
        """Names of the identities that are trained on, in the order of their labels."""
        return tuple(self.identity)[: self.num_classes]

    @property
    def trained_cameras(self) -> tuple[str, ...]:
        """Names of the cameras seen in training, in the order of their numbers."""
        return tuple(self.camera)[: self.num_cameras]


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=natural_key))


def _number(first: Sequence[str], names: Iterable[str]) -> dict[str, int]:
    rest = _sorted(set(names) - set(first))
    return {name: number for number, name in enumerate((*first, *rest))}
