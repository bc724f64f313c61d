"""Comparing runs: seeds become one row, and every row is set against the first, query by query."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from slimreid.config.model import BOTH
from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import (
    Interval,
    PairedDifference,
    QueryPrecisions,
    bootstrap_map,
    paired_bootstrap,
)
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.runs.record import RunRecord, check_same_data


@dataclass(frozen=True)
class Spread:
    """A figure over seeds, 0 to 1."""

    mean: float
    std: float | None
    """Sample standard deviation; None for a single seed."""
    values: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """Runs that differ only by their seed."""

    label: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    modalities: tuple[str, ...]
    map: Spread
    rank1: Spread
    minp: Spread
    interval: Interval | None
    """Of the mAP over identities, the average precision of each query being its mean over the seeds."""
    difference: PairedDifference | None
    """mAP minus that of the first row, over the same identities; None for the first row itself."""
    parameters: int | None
    """None where the model is not there; the same for `gflops`."""
    gflops: float | None
    images_per_second: float | None
    on_test: bool
    """Whether a checkpoint was chosen on the test set."""


@dataclass(frozen=True)
class Comparison:
    """All rows, and what a reader must know of them."""

    rows: tuple[Row, ...]
    feature: str
    data: str
    protocol: str
    queries: int
    gallery: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; shares are 0 to 1."""
        return asdict(self)


def group_by_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The same records, those that differ by nothing but the seed under one label, named after their runs.

    Two runs with the same options and the same seed stay apart.
    """
    groups: dict[tuple[str, int], list[RunRecord]] = {}
    for record in records:
        key = json.dumps([record.options, record.dataset, record.modalities], sort_keys=True)
        number = 0
        while record.seed in {other.seed for other in groups.get((key, number), [])}:
            number += 1
        groups.setdefault((key, number), []).append(record)
    labels = [_common_name([record.name for record in group]) for group in groups.values()]
    named: dict[int, RunRecord] = {}
    for group, label in zip(groups.values(), labels, strict=True):
        unique = label if labels.count(label) == 1 else group[0].name
        named |= {id(record): replace(record, label=unique) for record in group}
    return [named[id(record)] for record in records]


def _common_name(runs: Sequence[str]) -> str:
    """A name for runs that differ by their seed: what their folders have in common."""
    names = [PurePath(run).name or run for run in runs]
    if len(names) == 1:
        return names[0]
    common = os.path.commonprefix(names).rstrip("-_. =")  # noqa: RUF071 - letter by letter
    for ending in ("seed", "s"):
        if common == ending or common.endswith(tuple(f"{mark}{ending}" for mark in "-_. ")):
            common = common[: -len(ending)].rstrip("-_. ")
            break
    return common or PurePath(runs[0]).parent.name or runs[0]


def compare_records(
    records: Sequence[RunRecord],
    feature: str = BOTH,
    *,
    speeds: Mapping[str, float] | None = None,
    paired: bool = True,
    samples: int = 2000,
) -> Comparison:
    """One row per label in the order of first appearance; `speeds` are images per second by label.

    Raises `DataError` for runs that were evaluated on different data, unless `paired` is off, and
    `ConfigError` for a feature that one of them does not have.
    """
    if not records:
        raise DataError("there is nothing to compare; give at least one run")
    if paired:
        check_same_data(records)
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.label, []).append(record)
    first = _over_seeds(next(iter(groups.values())), feature)
    rows: list[Row] = []
    for label, group in groups.items():
        own = _over_seeds(group, feature)
        enough = own.identities > 1
        against = paired and enough and bool(rows)
        rows.append(
            Row(
                label=label,
                runs=tuple(record.name for record in group),
                seeds=tuple(record.seed for record in group),
                modalities=group[0].modalities,
                map=spread_of([r.figures(feature).map for r in group]),
                rank1=spread_of([r.figures(feature).cmc[1] for r in group]),
                minp=spread_of([r.figures(feature).minp for r in group]),
                interval=bootstrap_map(own, samples=samples) if enough else None,
                difference=paired_bootstrap(first, own, samples=samples) if against else None,
                parameters=group[0].parameters,
                gflops=group[0].gflops,
                images_per_second=(speeds or {}).get(label),
                on_test=any(record.select_on == "test" for record in group),
            )
        )
    one = records[0]
    return Comparison(
        rows=tuple(rows),
        feature=feature,
        data=one.data_name,
        protocol=one.protocol,
        queries=len(one.query_ids),
        gallery=one.gallery,
        notes=_notes(rows, records),
    )


def _over_seeds(group: Sequence[RunRecord], feature: str) -> QueryPrecisions:
    """The mean over seeds of the average precision of each query; raises `DataError` for unlike queries.

    The mean over queries and seeds is the same in either order, so a paired difference of these means
    pairs seed with seed where both rows have the same seeds.
    """
    check_same_data(group)
    found = [record.precisions(feature) for record in group]
    for other in found[1:]:
        if not np.array_equal(other.valid, found[0].valid):
            raise DataError(f"{group[0].label}: its runs skip different queries; evaluate them again")
    mean = np.mean([precisions.average_precision for precisions in found], axis=0)
    return replace(found[0], average_precision=mean)


def spread_of(values: Sequence[float]) -> Spread:
    """Mean and standard deviation of one figure over seeds."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), std, tuple(values))


def _notes(rows: Sequence[Row], records: Sequence[RunRecord]) -> tuple[str, ...]:
    notes = []
    if any(row.on_test for row in rows):
        notes.append(f"† {CHOSEN_ON_TEST}")
    if len({len(row.seeds) for row in rows}) > 1:
        notes.append("rows have different numbers of seeds")
    names = dict.fromkeys(record.data_name for record in records)
    if len(names) > 1:
        notes.append(f"the data has several names with equal rows: {', '.join(names)}")
    return tuple(notes)


def changed_options(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """The options in which labels differ, {option: {label: value}}."""
    by_label = {record.label: record.options for record in reversed(records)}
    by_label = {record.label: by_label[record.label] for record in records}
    keys = sorted({key for options in by_label.values() for key in options})
    found = {key: {label: options.get(key) for label, options in by_label.items()} for key in keys}
    return {k: v for k, v in found.items() if len({json.dumps(value) for value in v.values()}) > 1}
