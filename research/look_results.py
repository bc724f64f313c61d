"""What the standard test found of one model: a JSON file per model, and two of them compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from looks import CLEAN, DEGRADATIONS, SITES

from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import PairedDifference, bootstrap_map, nullable, paired_bootstrap
from slimreid.evaluation.reports.writing import dump
from slimreid.files import write_text
from slimreid.json_files import Kinds, check_object, parse_json
from slimreid.runs.record import QueryPrecisions

FORMAT = 1
_DIGITS = 4
"""Of average precisions in the file: they move a mAP by less than 5e-5."""
ALL_LOOKS = "all looks"
GOAL = 0.8
"""Share of the clean mAP that every single degradation should leave."""


@dataclass(frozen=True, eq=False)
class LookFigures:
    """How well a model retrieves under one look; shares are 0 to 1."""

    map: float
    low: float
    high: float
    """95 % interval of the mAP over identities."""
    rank1: float
    false_match_rate: float
    """Share of false pairs that reach the threshold; NaN where there is none."""
    true_match_rate: float
    average_precision: np.ndarray[Any, np.dtype[np.float64]]
    """(Q,), NaN for skipped queries."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "average_precision"}
        values = {name: None if value != value else round(value, 6) for name, value in plain.items()}
        return {**values, "average_precision": nullable(self.average_precision.round(_DIGITS))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LookFigures:
        """The figures that `to_dict` described."""
        names = [name for name in cls.__dataclass_fields__ if name != "average_precision"]
        numbers = {name: float("nan") if values[name] is None else float(values[name]) for name in names}
        return cls(**numbers, average_precision=np.array(values["average_precision"], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class LookResult:
    """One model under all looks."""

    name: str
    facts: dict[str, Any]
    """Model, data, threshold and where it comes from, as the file shows them."""
    sets: str
    """Changes with the looks and the rows: results of different sets are not compared."""
    protocol: str
    query_ids: tuple[str, ...]
    looks: dict[str, LookFigures]

    def share(self, look: str) -> float:
        """mAP as a share of that on the clean set."""
        return self.looks[look].map / self.looks[CLEAN].map

    def precisions(self, names: Sequence[str]) -> QueryPrecisions:
        """Average precision of every query, its mean over some looks."""
        mean = np.mean([self.looks[name].average_precision for name in names], axis=0)
        return QueryPrecisions(self.protocol, np.array(self.query_ids), mean)

    def summary(self) -> dict[str, Any]:
        """Mean share over degradations and sites, and the look that costs most."""
        found = {kind: [n for n in names if n in self.looks] for kind, names in _KINDS_OF_LOOKS.items()}
        means = {kind: [self.share(name) for name in names] for kind, names in found.items() if names}
        others = [name for name in self.looks if name != CLEAN]
        worst = min(others, key=self.share) if others else None
        return {
            "mean_share": {kind: round(float(np.mean(shares)), 4) for kind, shares in means.items()},
            "worst": worst,
            "worst_share": round(self.share(worst), 4) if worst else None,
        }

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "format": FORMAT,
            "name": self.name,
            **self.facts,
            "summary": self.summary(),
            "sets": self.sets,
            "protocol": self.protocol,
            "looks": {
                name: {"share": round(self.share(name), 4), **figures.to_dict()}
                for name, figures in self.looks.items()
            },
            "query_ids": list(self.query_ids),
        }


_KINDS_OF_LOOKS = {"degradations": DEGRADATIONS, "sites": SITES}
_KINDS: Kinds = {"name": str, "sets": str, "protocol": str, "looks": dict, "query_ids": list}
_OWN = {"format", "summary", *_KINDS}


def write_result(path: Path, result: LookResult) -> None:
    """Write a result atomically."""
    write_text(path, dump(result.to_dict()) + "\n")


def read_result(path: Path) -> LookResult:
    """Read a result; raises `DataError` naming the file and what is wrong with it."""
    cure = "run research/other_looks.py again"
    try:
        values = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such result; {cure}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable result ({error}); {cure}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT or "sets" not in values:
        raise DataError(f"{path}: not a result of the test on other looks; {cure}")
    try:
        check_object(values, _KINDS)
        result = LookResult(
            name=values["name"],
            facts={name: value for name, value in values.items() if name not in _OWN},
            sets=values["sets"],
            protocol=values["protocol"],
            query_ids=tuple(values["query_ids"]),
            looks={name: LookFigures.from_dict(figures) for name, figures in values["looks"].items()},
        )
        for name in (CLEAN, *result.looks):
            result.precisions([name])
    except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
        raise DataError(f"{path}: damaged ({error!r}); {cure}") from None
    return result


def missed(result: LookResult) -> list[str]:
    """The degradations that leave less than `GOAL` of the clean mAP."""
    return [name for name in DEGRADATIONS if name in result.looks and result.share(name) < GOAL]


def over_seeds(results: Sequence[LookResult], name: str = "") -> LookResult:
    """One result for several seeds of a model: means of figures and of each query's average precision.

    Raises `DataError` where they were not measured on the same sets.
    """
    first = results[0]
    for other in results[1:]:
        _check_same_sets(first, other)
    found = {look: _mean_figures(results, look) for look in first.looks} if len(results) > 1 else first.looks
    return replace(first, name=name or first.name, looks=found)


def _mean_figures(results: Sequence[LookResult], look: str) -> LookFigures:
    each = [result.looks[look] for result in results]
    names = ("map", "rank1", "false_match_rate", "true_match_rate")
    means = {name: float(np.mean([getattr(one, name) for one in each])) for name in names}
    precision = np.mean([one.average_precision for one in each], axis=0)
    whole = QueryPrecisions(results[0].protocol, np.array(results[0].query_ids), precision)
    interval = bootstrap_map(whole)
    return LookFigures(**means, low=interval.low, high=interval.high, average_precision=precision)


def _check_same_sets(first: LookResult, second: LookResult) -> None:
    if first.sets != second.sets or set(first.looks) != set(second.looks):
        raise DataError(
            f"{first.name} and {second.name} were measured on different sets; give both to one "
            "research/other_looks.py"
        )


def compare(first: LookResult, second: LookResult) -> dict[str, PairedDifference]:
    """mAP of the second minus that of the first over the same identities, per look and over all but clean.

    Raises `DataError` where they were not measured on the same sets.
    """
    _check_same_sets(first, second)
    groups = {name: [name] for name in first.looks}
    if others := [name for name in first.looks if name != CLEAN]:
        groups[ALL_LOOKS] = others
    return {
        name: paired_bootstrap(first.precisions(names), second.precisions(names))
        for name, names in groups.items()
    }
