"""What a gallery consists of: rows, filters, changes, the log, and the model that made the features."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from slimreid.arrays import Floats, Ints
from slimreid.data.manifest import ImageRef, images_from_json, images_to_json
from slimreid.gallery.errors import GalleryError
from slimreid.inference.similarity import Similarity

FORGOTTEN = "[forgotten]"
"""What stands in the log for names and paths that were erased."""

COLUMNS = "id, identity, sample_group, modalities, camera, time, files, hash, quality, reasons, removed"
"""Under which names stores keep the fields of a row, in order."""
LOG_COLUMNS = "id, time, by, operation, count, details, undoable, undone_by"
"""The same for an entry of the log."""

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class NewRow:
    """A sample to be enrolled."""

    feature: Floats
    """(D,) L2-normalised."""
    modalities: tuple[str, ...]
    """Those it was seen in, in the model's order."""
    identity: str = ""
    """'' where nobody knows."""
    group: str = ""
    """Samples of one tracklet share it; '' = none."""
    camera: str = ""
    time: float | None = None
    """Seconds since 1970 (UTC); None where nobody knows."""
    files: Mapping[str, ImageRef] = field(default_factory=dict)
    """Per modality, where its image was read from; absolute paths."""
    hash: str = ""
    """SHA-256 over the content of the files, by which a sample enrolled twice is noticed."""
    quality: float | None = None
    """0 to 1; None where it was not judged."""
    reasons: tuple[str, ...] = ()
    """What speaks against the images."""
    thumbnail: bytes = b""
    """JPEG: the modalities side by side, all of one width."""


@dataclass(frozen=True)
class Row:
    """A row of a gallery, without its feature and thumbnail."""

    id: int
    identity: str
    group: str
    modalities: tuple[str, ...]
    camera: str
    time: float | None
    files: Mapping[str, ImageRef]
    hash: str
    quality: float | None
    reasons: tuple[str, ...] = ()
    removed: bool = False
    """Whether it is out of the gallery, kept only so that this can be undone."""


@dataclass(frozen=True)
class RowState:
    """What of a row can change."""

    identity: str
    group: str
    removed: bool = False


@dataclass(frozen=True)
class Filter:
    """Which rows are meant; what is None does not matter."""

    ids: Sequence[int] | None = None
    identities: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    cameras: Sequence[str] | None = None
    since: float | None = None
    """Rows of this time (seconds since 1970) or later."""
    until: float | None = None
    """Rows before this time."""
    modalities: Sequence[str] | None = None
    """Rows that were seen at least in these."""
    hashes: Sequence[str] | None = None
    removed: bool | None = False
    """True = only rows that were removed, None = these too."""

    @property
    def is_all(self) -> bool:
        """Whether every row that is in the gallery is meant."""
        return self == Filter()

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """Column of `COLUMNS` -> texts of which a row must have one."""
        given = {
            "identity": self.identities,
            "sample_group": self.groups,
            "camera": self.cameras,
            "hash": self.hashes,
        }
        return {name: texts for name, texts in given.items() if texts is not None}


@dataclass(frozen=True, eq=False)
class ModelInfo:
    """The model that made the features of a gallery, as far as a gallery must know it."""

    fingerprint: str
    """`feature_fingerprint` of the model."""
    feature: str
    """Kind: original, slimmed, fused or both."""
    dimension: int
    similarity: Similarity
    path: str = ""
    """Where the model was; a hint for people and for commands without --model."""

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities of the model, in order."""
        return self.similarity.modalities

    def to_json(self) -> str:
        """As text, figures to the last bit."""
        values = {
            "fingerprint": self.fingerprint,
            "feature": self.feature,
            "dimension": self.dimension,
            "path": self.path,
            **self.similarity.to_plain(),
        }
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> ModelInfo:
        """What `to_json` wrote; raises `ValueError`, `KeyError` or `DataError` for anything else."""
        values = json.loads(text)
        similarity = Similarity.from_plain(values)
        return cls(values["fingerprint"], values["feature"], values["dimension"], similarity, values["path"])


@dataclass(frozen=True, eq=False)
class Change:
    """One change of a gallery: it happens as a whole, with its entry in the log, or not at all."""

    operation: str
    by: str
    details: Mapping[str, Any] = field(default_factory=dict)
    """For the log; names and paths are whole values, so that they can be forgotten."""
    rows: Sequence[NewRow] = ()
    """Rows to add."""
    states: Mapping[int, RowState] = field(default_factory=dict)
    """Row -> what it becomes."""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """Settings of the gallery -> what they become; None = none."""
    count: int | None = None
    """Rows that it concerns, for the log; None = those that are added or changed."""
    continues: int | None = None
    """Entry of the log that this is a further part of."""
    undoes: int | None = None
    """Entry of the log that this undoes."""


@dataclass(frozen=True)
class LogEntry:
    """One line of the log: a change or a search."""

    id: int
    time: float
    """Seconds since 1970 (UTC)."""
    by: str
    operation: str
    count: int
    """Rows that were changed or found."""
    details: Mapping[str, Any]
    undoable: bool
    undone_by: int | None = None
    """Entry that undid it."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found for one query, best first."""

    ids: Ints
    scores: Floats
    identities: tuple[str, ...]
    """Of each, '' where nobody knows."""


def shared_fields(row: Row | NewRow) -> dict[str, Any]:
    """What a row of a gallery and one to be enrolled have in common."""
    return {f.name: getattr(row, f.name) for f in fields(NewRow) if f.name not in ("feature", "thumbnail")}


def whole_row(row: Row, feature: Floats, thumbnail: bytes) -> NewRow:
    """A row with its feature and thumbnail, as it could be enrolled elsewhere."""
    return NewRow(feature=feature, thumbnail=thumbnail, **shared_fields(row))


def check_features(rows: Sequence[NewRow], dimension: int) -> None:
    """Raise `GalleryError` for a feature of another length than those of the gallery."""
    for row in rows:
        if row.feature.shape != (dimension,):
            raise GalleryError(f"a feature is {row.feature.shape}, but those of the gallery ({dimension},)")


def to_columns(number: int, row: NewRow) -> dict[str, Any]:
    """What a store keeps of a new row, as `COLUMNS`."""
    return {
        "id": number,
        "identity": row.identity,
        "sample_group": row.group,
        "modalities": "+".join(row.modalities),
        "camera": row.camera,
        "time": row.time,
        "files": images_to_json(row.files),
        "hash": row.hash,
        "quality": row.quality,
        "reasons": json.dumps(list(row.reasons)),
        "removed": False,
    }


def to_row(line: Sequence[Any]) -> Row:
    """What a store keeps of a row, as `COLUMNS`; NaN is no number."""
    number, identity, group, modalities, camera, time, files, digest, quality, reasons, removed = line
    return Row(
        number,
        identity,
        group,
        split_modalities(modalities),
        camera,
        None if time != time else time,
        images_from_json(files),
        digest,
        None if quality != quality else quality,
        tuple(json.loads(reasons)),
        bool(removed),
    )


def to_entry(line: Sequence[Any]) -> LogEntry:
    """What a store keeps of an entry of the log, as `LOG_COLUMNS`; 0 = not undone."""
    number, time, by, operation, count, details, undoable, undone_by = line
    return LogEntry(
        number, time, by, operation, count, json.loads(details), bool(undoable), undone_by or None
    )


def split_modalities(text: str) -> tuple[str, ...]:
    """The names in `rgb+tir`."""
    return tuple(text.split("+")) if text else ()


def in_parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Items `size` at a time."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def without_words(value: Any, words: set[str]) -> Any:
    """JSON in which every text that is one of the words, or a path with one as a part, is replaced."""
    if isinstance(value, dict):
        return {key: without_words(inner, words) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_words(inner, words) for inner in value]
    if isinstance(value, str) and (
        value in words or not words.isdisjoint(value.replace("\\", "/").split("/"))
    ):
        return FORGOTTEN
    return value
