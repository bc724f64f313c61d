"""Evaluating a trained model on a dataset: everything a reviewer asks for, in one object."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from slimreid.config.model import BOTH
from slimreid.data.manifest import Protocol
from slimreid.errors import DataError
from slimreid.evaluation.metrics.rerank import KReciprocal
from slimreid.evaluation.query_gallery import SPLITS_OF, Part, Side, select_part, side_of, side_rows
from slimreid.evaluation.reports.feature_metrics import FeatureMetrics, Search, feature_metrics
from slimreid.evaluation.reports.missing import MissingMatrix, missing_matrix
from slimreid.evaluation.reports.thresholds import Threshold, ThresholdRates, needed_subsets, threshold_rates
from slimreid.inference.adapt import refuse_fitted
from slimreid.inference.features.cache import evaluation_key
from slimreid.inference.features.data import Cameras, ModelData, camera_numbers, describe_data, open_data
from slimreid.inference.features.extract import Extraction, Features, extract_features
from slimreid.inference.load import results_folder, shipped_name
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import CARD_NAME, CHOSEN_ON_TEST, MODEL_NAME
from slimreid.inference.similarity import Subset, feature_kinds
from slimreid.json_files import check_object, parse_json, shown
from slimreid.modalities import all_subsets

FORMAT = 2
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
    features: dict[str, FeatureMetrics]
    """By kind of feature."""
    missing: dict[str, MissingMatrix]
    """By kind of feature; empty if not asked for."""
    query: Side
    gallery: Side
    notes: tuple[str, ...]
    """What a reader of the figures must know."""
    seconds: float
    key: str
    """What decides the figures, see `evaluation_key`: with another one they must be measured again."""
    rerank: KReciprocal | None = None
    """Options of re-ranking, if it was asked for."""
    cameras: Cameras = "auto"
    """What camera names meant, see `Cameras`."""
    adaptation: str = ""
    """SHA-256 of what the model was adapted with; empty where it was not."""
    skip_broken: bool | None = None
    """Whether samples whose files cannot be read were left out; None = as in the run."""
    thresholds: tuple[ThresholdRates, ...] = ()
    """What given thresholds do on this data, if some were given."""

    @property
    def main(self) -> str:
        """The kind of feature to name if only one is named: both branches, or what there is."""
        return BOTH if BOTH in self.features else list(self.features)[-1]

    @property
    def scores(self) -> FeatureMetrics:
        """The figures of the `main` kind of feature."""
        return self.features[self.main]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, from which `read_evaluation` makes it again; shares are 0 to 1."""
        large = {
            "features": {kind: scores.to_dict() for kind, scores in self.features.items()},
            "missing": {kind: matrix.to_dict() for kind, matrix in self.missing.items()},
            "thresholds": [rates.to_dict() for rates in self.thresholds],
            "query": self.query.to_dict(),
            "gallery": self.gallery.to_dict(),
        }
        plain = {name: value for name, value in vars(self).items() if name not in large} | {
            "model": self.model.as_posix(),
            "manifest": self.manifest.as_posix(),
            "modalities": list(self.modalities),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "rerank": asdict(self.rerank) if self.rerank else None,
        }
        return {"format": FORMAT, **plain, **large}


@dataclass(frozen=True)
class EvaluationOptions:
    """What is measured."""

    features: Kinds = "all"
    """Kinds of features to search by."""
    missing: bool = False
    """Also all pairs of subsets of the modalities, and the mixed gallery."""
    rerank: KReciprocal | None = None
    """Also with k-reciprocal re-ranking."""
    protocol: Protocol | None = None
    """None = the manifest's."""
    part: Part = "test"
    thresholds: Sequence[Threshold] = ()
    """Thresholds to apply, see `threshold_rates`."""


def evaluate_model(
    loaded: LoadedModel,
    data: ModelData | Path | str | None = None,
    options: EvaluationOptions | None = None,
    extraction: Extraction | None = None,
) -> Evaluation:
    """Measure a model on the queries and gallery of a dataset.

    Args:
        loaded: The model.
        data: A dataset that is open already, or a manifest; None = the data of the model's run.
        options: What is measured.
        extraction: How features are computed, and where they are kept.

    Raises:
        ConfigError, DataError: Naming the option, file or row that is wrong.
    """
    started = time.monotonic()
    options, extraction = options or EvaluationOptions(), extraction or Extraction()
    kinds = feature_kinds(loaded, options.features)
    data = data if isinstance(data, ModelData) else open_data(loaded, data)
    part, protocol = options.part, options.protocol or data.manifest.protocol
    data, rows = select_part(data, part)
    if loaded.adaptation is not None:
        refuse_fitted(loaded.path, loaded.adaptation, data.manifest)
    key = evaluation_key(loaded, data, protocol, extraction.cameras, extraction.skip_broken)
    available = data.manifest.modalities
    subsets = all_subsets(available) if options.missing else [available]
    thresholds = options.thresholds
    named = needed_subsets(thresholds, available) if thresholds else []
    found = extract_features(loaded, data, list(dict.fromkeys([*subsets, *named])), extraction)
    complete = found[available]
    query, gallery = side_rows(data.manifest.samples, part, complete.rows.tolist())
    for split, side in ((SPLITS_OF[part][0], query), (SPLITS_OF[part][-1], gallery)):
        if not len(side):
            raise DataError(f"{data.path}: no readable image is left of split '{split}'")
    search = Search(data.manifest.samples, query, gallery, protocol)
    similarities = {kind: loaded.similarity(kind) for kind in kinds}
    try:
        scores = {
            kind: feature_metrics(complete, kind, search, similarity, options.rerank)
            for kind, similarity in similarities.items()
        }
    except DataError as error:
        raise DataError(f"{data.path}: {error}") from None
    matrices = {
        kind: missing_matrix(found, kind, search, similarity, scores[kind].result, extraction.show_progress)
        for kind, similarity in (similarities.items() if options.missing else ())
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
        thresholds=threshold_rates(found, available, search, similarities, thresholds) if thresholds else (),
        query=replace(side_of(data.manifest, query), rows=rows[query]),
        gallery=replace(side_of(data.manifest, gallery), rows=rows[gallery]),
        notes=tuple(_notes(loaded, data, part, extraction.cameras, complete)),
        seconds=time.monotonic() - started,
        key=key,
        rerank=options.rerank,
        cameras=extraction.cameras,
        skip_broken=extraction.skip_broken,
        adaptation=loaded.adaptation.digest if loaded.adaptation is not None else "",
    )


def evaluation_folder(model: Path, data: ModelData | None = None, part: Part = "test") -> Path:
    """Where the evaluation of a model is kept: beside it, on other data than its own with their name."""
    usual = model.name in (MODEL_NAME, CARD_NAME) or shipped_name(model) is not None
    stem = FOLDER if usual else f"{model.stem}-{FOLDER}"
    named = f"{stem}-{data.name}" if data and not data.own else stem
    return results_folder(model) / (named if part == "test" else f"{named}-{part}")


def read_evaluation(path: Path | str) -> Evaluation:
    """Read an evaluation.json, or the one in a folder; raises `DataError` naming the file and its fault."""
    path = Path(path)
    path = path / JSON_NAME if path.is_dir() else path
    try:
        values = parse_json(path.read_bytes())
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
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, DataError) as error:
        raise DataError(f"{path}: damaged ({error!r}); run 'slimreid evaluate' again") from None


_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("model", "fingerprint", "manifest", "dataset", "origin", "key"), str),
    **dict.fromkeys(("modalities", "notes"), list),
    **dict.fromkeys(("features", "missing", "query", "gallery"), dict),
    "epoch": int,
    "seconds": float,
    "skip_broken": (bool, type(None)),
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "part": get_args(Part),
    "protocol": get_args(Protocol),
    "cameras": get_args(Cameras),
    "select_on": ("val", "test", "last"),
}


def _from_dict(values: Mapping[str, Any]) -> Evaluation:
    check_object(values, {**_TYPES, **dict.fromkeys(_CHOICES, str)})
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise ValueError(f"'{name}' is {shown(values[name])}")
    if not values["features"]:
        raise ValueError("no feature")
    plain = ["fingerprint", "epoch", "dataset", "origin", "seconds", "key", "skip_broken", *_CHOICES]
    return Evaluation(
        **{name: values[name] for name in plain},
        model=Path(values["model"]),
        manifest=Path(values["manifest"]),
        modalities=tuple(values["modalities"]),
        notes=tuple(values["notes"]),
        features={kind: FeatureMetrics.from_dict(scores) for kind, scores in values["features"].items()},
        missing={kind: MissingMatrix.from_dict(matrix) for kind, matrix in values["missing"].items()},
        query=Side.from_dict(values["query"]),
        gallery=Side.from_dict(values["gallery"]),
        thresholds=tuple(map(ThresholdRates.from_dict, values.get("thresholds", []))),
        adaptation=str(values.get("adaptation", "")),
        rerank=KReciprocal(**values["rerank"]) if values.get("rerank") else None,
    )


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
