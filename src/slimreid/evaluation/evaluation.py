"""Evaluating a trained model on a dataset: everything a reviewer asks for, in one object."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from slimreid.data.manifest import Protocol
from slimreid.errors import DataError
from slimreid.evaluation import records
from slimreid.evaluation.data import (
    Cameras,
    ModelData,
    camera_numbers,
    describe_data,
    open_data,
    select_part,
)
from slimreid.evaluation.features import Features, Subset, extract_features, feature_kinds
from slimreid.evaluation.inputs import Ints
from slimreid.evaluation.kind_scores import Scores, score_kind
from slimreid.evaluation.missing import MissingMatrix, missing_matrix
from slimreid.evaluation.parts import SPLITS_OF, Part, Side, side_of
from slimreid.evaluation.rerank import KReciprocal
from slimreid.loading import CHOSEN_ON_TEST, MODEL_NAME, LoadedModel
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import BOTH

__all__ = ["Evaluation", "MissingMatrix", "Scores", "evaluate_model", "evaluation_folder", "read_evaluation"]

FORMAT = 1
FOLDER = "evaluation"
JSON_NAME = "evaluation.json"
Kinds = Literal["original", "slimmed", "fused", "both", "all"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was measured of which model on which data."""

    model: Path
    """The model's file."""
    fingerprint: str
    epoch: int
    select_on: str
    """How the checkpoint was chosen: on `val`, on `test`, or `last` = not chosen."""
    manifest: Path
    dataset: str
    """Short name of the data."""
    part: Part
    origin: str
    """What the pixels of the data are, if the manifest says so."""
    protocol: Protocol
    modalities: Subset
    """What the model was shown: its modalities, as far as the data has them."""
    features: dict[str, Scores]
    """By kind of feature."""
    missing: dict[str, MissingMatrix]
    """By kind of feature; empty if not asked for."""
    query: Side
    gallery: Side
    notes: tuple[str, ...]
    """What a reader of the figures must know."""
    seconds: float
    rerank: KReciprocal | None = None
    """Options of re-ranking, if it was asked for."""

    @property
    def main(self) -> str:
        """The kind of feature to name if only one is named: both branches, or what there is."""
        return BOTH if BOTH in self.features else list(self.features)[-1]

    @property
    def scores(self) -> Scores:
        """The scores of the `main` kind of feature."""
        return self.features[self.main]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, from which `read_evaluation` makes it again; shares are 0 to 1."""
        return {
            "format": FORMAT,
            "model": self.model.as_posix(),
            "fingerprint": self.fingerprint,
            "epoch": self.epoch,
            "select_on": self.select_on,
            "manifest": self.manifest.as_posix(),
            "dataset": self.dataset,
            "part": self.part,
            "origin": self.origin,
            "protocol": self.protocol,
            "modalities": list(self.modalities),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "rerank": asdict(self.rerank) if self.rerank else None,
            "features": {kind: scores.to_dict() for kind, scores in self.features.items()},
            "missing": {kind: matrix.to_dict() for kind, matrix in self.missing.items()},
            "query": records.side_to_dict(self.query),
            "gallery": records.side_to_dict(self.gallery),
        }


def evaluate_model(
    loaded: LoadedModel,
    manifest: Path | str | None = None,
    *,
    features: Kinds = "all",
    missing: bool = False,
    rerank: KReciprocal | bool = False,
    protocol: Protocol | None = None,
    part: Part = "test",
    folder: Path | None = None,
    cameras: Cameras = "auto",
    batch: int | None = None,
    workers: int | None = None,
    skip_broken: bool | None = None,
    show_progress: bool | None = None,
) -> Evaluation:
    """Measure a model on the queries and gallery of a manifest; None = the data of its run.

    `missing` adds the matrix of all subsets of modalities, `rerank` k-reciprocal re-ranking. `protocol`
    None = the manifest's. `folder` is where features are kept and found again. `cameras` says whether
    cameras named as those of training are those (see `Cameras`), `skip_broken` whether samples whose files
    cannot be read are left out (None: as in the run). Raises `ConfigError` or `DataError`.
    """
    started = time.monotonic()
    kinds = feature_kinds(loaded.model, features)
    data = open_data(loaded, manifest)
    protocol = protocol or data.manifest.protocol
    data, rows = select_part(data, part)
    available = data.manifest.modalities
    subsets = all_subsets(available) if missing else [available]
    found = extract_features(
        loaded,
        data,
        subsets,
        cameras=cameras,
        batch=batch,
        workers=workers,
        cache=folder,
        skip_broken=skip_broken,
        show_progress=show_progress,
    )
    complete = found[available]
    query, gallery = (_rows_of(data, complete, split) for split in (SPLITS_OF[part][0], SPLITS_OF[part][-1]))
    options = KReciprocal() if rerank is True else rerank or None
    samples = data.manifest.samples
    with _naming(data.path):
        scores = {k: score_kind(complete, k, samples, query, gallery, protocol, options) for k in kinds}
    chance = scores[kinds[0]].result.chance_map
    matrices = {
        kind: missing_matrix(found, kind, samples, query, gallery, protocol, chance, show_progress)
        for kind in (kinds if missing else ())
    }
    return Evaluation(
        model=loaded.path,
        fingerprint=loaded.fingerprint,
        epoch=loaded.card.epoch,
        select_on=loaded.card.select_on,
        manifest=data.path,
        dataset=data.name,
        part=part,
        origin=data.manifest.origin,
        protocol=protocol,
        modalities=available,
        features=scores,
        missing=matrices,
        query=replace(side_of(data.manifest, query), rows=rows[query]),
        gallery=replace(side_of(data.manifest, gallery), rows=rows[gallery]),
        notes=tuple(_notes(loaded, data, part, cameras, complete)),
        seconds=time.monotonic() - started,
        rerank=options,
    )


def evaluation_folder(model: Path, data: ModelData | None = None, part: Part = "test") -> Path:
    """Where the evaluation of a model is kept: beside it, on other data than its own with their name."""
    stem = FOLDER if model.name == MODEL_NAME else f"{model.stem}-{FOLDER}"
    named = f"{stem}-{data.name}" if data and not data.own else stem
    return model.parent / (named if part == "test" else f"{named}-{part}")


def read_evaluation(path: Path | str) -> Evaluation:
    """Read an evaluation.json, or the one in a folder; raises `DataError` naming the file and its fault."""
    path = Path(path)
    path = path / JSON_NAME if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; make it with 'slimreid evaluate'") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: not a readable evaluation ({error}); run 'slimreid evaluate' again"
        ) from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DataError(f"{path}: not an evaluation of this version; run 'slimreid evaluate' again")
    try:
        return _from_dict(values)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, DataError) as error:
        raise DataError(f"{path}: damaged ({error!r}); run 'slimreid evaluate' again") from None


def _from_dict(values: Mapping[str, Any]) -> Evaluation:
    plain = ("fingerprint", "epoch", "select_on", "dataset", "part", "origin", "protocol", "seconds")
    return Evaluation(
        **{name: values[name] for name in plain},
        model=Path(values["model"]),
        manifest=Path(values["manifest"]),
        modalities=tuple(values["modalities"]),
        notes=tuple(values["notes"]),
        features={kind: Scores.from_dict(scores) for kind, scores in values["features"].items()},
        missing={kind: MissingMatrix.from_dict(matrix) for kind, matrix in values["missing"].items()},
        query=records.side_from_dict(values["query"]),
        gallery=records.side_from_dict(values["gallery"]),
        rerank=KReciprocal(**values["rerank"]) if values.get("rerank") else None,
    )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say of which data an error within the block is."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _rows_of(data: ModelData, features: Features, split: str) -> Ints:
    """Rows of a split that have features."""
    rows = [i for i in features.rows.tolist() if data.manifest.samples[i].split == split]
    if not rows:
        raise DataError(f"{data.path}: no readable image is left of split '{split}'")
    return np.array(rows, dtype=np.int64)


def _notes(
    loaded: LoadedModel, data: ModelData, part: Part, cameras: Cameras, features: Features
) -> list[str]:
    """What a reader of the figures must know."""
    notes = []
    chosen_on = loaded.card.select_on
    if data.own and chosen_on == part:
        notes.append(CHOSEN_ON_TEST if part == "test" else "the checkpoint was chosen on these very rows")
    elif chosen_on == "test":
        notes.append("the checkpoint was chosen on the test set of the data it was trained on")
    if data.own:
        trained = {s.identity for s in data.manifest.samples} & set(loaded.identities)
        if trained:
            notes.append(f"{len(trained)} of these identities were trained on, so the figures are too good")
    notes += describe_data(loaded, data, camera_numbers(loaded, data, cameras))
    if features.dropped:
        first = next(iter(features.dropped.values()))
        notes.append(f"{len(features.dropped)} rows left out for broken files, first: {first}")
    return notes
