"""The result of one run, in one small JSON file: figures, what they are compared by, where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.arrays import Doubles
from slimreid.config.files import known_keys, without_removed
from slimreid.config.model import BOTH, ORIGINAL
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.result import QueryPrecisions, nullable
from slimreid.evaluation.query_gallery import Side
from slimreid.evaluation.reports.writing import dump
from slimreid.files import write_text
from slimreid.json_files import Kinds, check_object, json_digest, parse_json

FORMAT = 1
_DIGITS = 6
"""Of average precisions in the file: they move the mAP by less than 1e-6."""


@dataclass(frozen=True, eq=False)
class FeatureFigures:
    """How well one kind of feature retrieves; all figures 0 to 1."""

    map: float
    minp: float
    cmc: dict[int, float]
    """Rank -> share of queries with a hit up to it."""
    average_precision: Doubles
    """(Q,), NaN for skipped queries."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, average precisions rounded."""
        cmc = {str(rank): share for rank, share in self.cmc.items()}
        precisions = nullable(self.average_precision.round(_DIGITS))
        return {**vars(self), "cmc": cmc, "average_precision": precisions}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureFigures:
        """The figures that `to_dict` described."""
        cmc = {int(rank): float(share) for rank, share in values["cmc"].items()}
        precisions = np.array(values["average_precision"], dtype=np.float64)
        return cls(float(values["map"]), float(values["minp"]), cmc, precisions)


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run: what decided it, what came out, and all that is needed to compare it with others."""

    name: str
    seed: int
    options: dict[str, Any]
    """The options that decide a result, dotted, without the seed and places of files."""
    dataset: str
    """Fingerprint of the manifest's rows at training; '' where it is not known."""
    data_name: str
    """Short name of the data of the evaluation."""
    data: dict[str, str]
    """Fingerprints of what was searched: `sides` (identities, cameras), and per modality its images."""
    select_on: str
    epoch: int
    protocol: str
    modalities: tuple[str, ...]
    origin: str
    query_ids: NDArray[np.str_]
    gallery: int
    """Size of the gallery."""
    features: dict[str, FeatureFigures]
    parameters: int | None
    """None where only an evaluation is there, not its model; the same for `gflops`."""
    gflops: float | None
    """Billions of multiply-adds for one sample with all modalities."""
    seconds: dict[str, float] = field(default_factory=dict)
    """`train`, `evaluate`."""
    missing: dict[str, Any] = field(default_factory=dict)
    """Per kind of feature the matrix of missing modalities, if it was asked for."""
    selection: dict[str, Any] = field(default_factory=dict)
    """Lists over epochs of what became of the choice of patches, if it was watched: `selection_summary`."""
    source: dict[str, Any] = field(default_factory=dict)
    """Command, commit, versions, fingerprint of the weights."""
    label: str = ""
    """What tables call the runs that differ from this one by their seed only."""

    def figures(self, feature: str = BOTH) -> FeatureFigures:
        """The figures of a kind of feature; raises `ConfigError` for one the run does not have.

        Without a second branch `both` is the original one.
        """
        if feature == BOTH and BOTH not in self.features and ORIGINAL in self.features:
            feature = ORIGINAL
        if feature not in self.features:
            raise ConfigError(f"{self.name}: no feature '{feature}'; it has {', '.join(self.features)}")
        return self.features[feature]

    def precisions(self, feature: str = BOTH) -> QueryPrecisions:
        """The average precision of every query, for intervals."""
        return QueryPrecisions(self.protocol, self.query_ids, self.figures(feature).average_precision)

    @property
    def unknown_options(self) -> tuple[str, ...]:
        """Options that this version does not have: an earlier one made the run, with other names for them."""
        known = set(known_keys())
        return tuple(sorted(key for key in self.options if key not in known))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        changed = {
            "modalities": list(self.modalities),
            "query_ids": self.query_ids.tolist(),
            "features": {kind: figures.to_dict() for kind, figures in self.features.items()},
        }
        return {"format": FORMAT, **vars(self), **changed}


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record atomically."""
    write_text(path, dump(record.to_dict()) + "\n")


_KINDS: Kinds = {
    **dict.fromkeys(("name", "dataset", "data_name", "select_on", "protocol", "origin", "label"), str),
    **dict.fromkeys(("seed", "epoch", "gallery", "parameters"), int),
    **dict.fromkeys(("options", "data", "features", "seconds", "missing", "selection", "source"), dict),
    **dict.fromkeys(("modalities", "query_ids"), list),
    "gflops": float,
}
_OPTIONAL: dict[str, Any] = {"seconds": {}, "missing": {}, "selection": {}, "source": {}, "label": ""}


def read_record(path: Path) -> RunRecord:
    """Read a record; raises `DataError` naming the file and what is wrong with it."""
    cure = "remove it and run the experiment again"
    try:
        values = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such result") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable result ({error}); {cure}") from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not a result of an experiment of this version; run the experiment again")
    if "query_ids" not in values:
        raise DataError(f"{path}: not the result of an experiment; name a run's folder, or one of results/")
    try:
        check_object({**_OPTIONAL, **values}, _KINDS)
        given = values.pop("features")
        features = {kind: FeatureFigures.from_dict(figures) for kind, figures in given.items()}
        modalities = tuple(values.pop("modalities"))
        query_ids = np.array(values.pop("query_ids"), dtype=np.str_)
        values["options"] = without_removed(values["options"])
        record = RunRecord(**values, features=features, modalities=modalities, query_ids=query_ids)
        for kind in features:
            record.precisions(kind)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError) as error:
        raise DataError(f"{path}: damaged ({error}); {cure}") from None
    return record


def searched_data(query: Side, gallery: Side) -> dict[str, str]:
    """Fingerprints of the sides of a search: who is where, and per modality which files show them."""
    names = dict.fromkeys(name for side in (query, gallery) for images in side.images for name in images)
    who = [[side.identities.tolist(), side.cameras.tolist()] for side in (query, gallery)]
    files = {n: [[images.get(n) for images in side.images] for side in (query, gallery)] for n in names}
    return {name: json_digest(value)[:16] for name, value in {"sides": who, **files}.items()}


def check_same_data(records: Sequence[RunRecord]) -> None:
    """Raise `DataError` naming the first run that was not evaluated on the data of the first one."""
    first = records[0]
    for other in records[1:]:
        shared = set(first.data) & set(other.data)
        own, its = (f"{len(r.query_ids)} queries in a gallery of {r.gallery}" for r in (first, other))
        if first.protocol != other.protocol:
            why = f"under protocol '{first.protocol}', the other under '{other.protocol}'"
        elif own != its:
            why = f"with {own}, the other with {its}"
        elif any(first.data[name] != other.data[name] for name in shared):
            why = f"on '{first.data_name}', the other on '{other.data_name}', and their rows differ"
        else:
            continue
        raise DataError(
            f"{first.name} and {other.name} were not evaluated on the same data: the first {why}; "
            "evaluate them on one manifest and under one protocol with 'slimreid evaluate'"
        )
