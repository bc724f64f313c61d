"""An evaluation as tables for people, and as JSON, CSV and Markdown files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.arrays import Doubles
from slimreid.evaluation.metrics.result import RANKS, Interval, RetrievalResult
from slimreid.evaluation.reports.evaluate import JSON_NAME, Evaluation
from slimreid.evaluation.reports.formatting import NOTHING, escaped, markdown_table, points, points_range
from slimreid.evaluation.reports.missing import MissingMatrix, MixedGallery
from slimreid.evaluation.reports.thresholds import ThresholdRates
from slimreid.files import csv_text, write_text
from slimreid.inference.similarity import Subset
from slimreid.modalities import subset_name

CSV_NAME = "evaluation.csv"
MARKDOWN_NAME = "evaluation.md"
FIGURES = ("feature", "mAP", "95 %", "mINP", *(f"R-{k}" for k in RANKS))
"""Columns of the table of retrieval."""

_CONSTANT = ("model", "fingerprint", "epoch", "select_on", "dataset", "part", "origin", "protocol")
_VARYING = ("feature", "ranking", "query", "gallery", "figure", "value")


@dataclass(frozen=True)
class Sheet:
    """A table for people: shares in points of 100."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kind: str | None = None
    """The kind of feature it is about; None = all."""


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write evaluation.json, evaluation.csv and evaluation.md into a folder; returns their paths."""
    texts = {
        JSON_NAME: dump(evaluation.to_dict()) + "\n",
        CSV_NAME: to_csv(evaluation),
        MARKDOWN_NAME: to_markdown(evaluation),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return tuple(folder / name for name in texts)


def chance_text(matrix: MissingMatrix) -> str:
    """The chance level of a matrix: one, or its range where samples lack modalities of their own accord."""
    levels, complete = points_range(matrix.chances), points(matrix.chance)
    return f"chance {levels}" if levels in (complete, NOTHING) else f"chance {levels}, complete {complete}"


def facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """What was measured, and everything a reader of the figures must know."""
    chosen = {"val": "chosen on val", "test": "chosen on the test set", "last": "the last, not chosen"}
    result = evaluation.scores.result
    lines = [
        ("model", f"{evaluation.model} ({evaluation.fingerprint[:12]})"),
        ("epoch", f"{evaluation.epoch}, {chosen[evaluation.select_on]}"),
        ("data", f"{evaluation.manifest} ({evaluation.part})"),
    ]
    if evaluation.origin:
        lines.append(("origin", evaluation.origin))
    lines += [
        ("modalities", "+".join(evaluation.modalities)),
        ("protocol", evaluation.protocol),
        ("queries", f"{result.valid_queries:,} valid, {result.skipped_queries:,} skipped"),
        ("gallery", f"{len(evaluation.gallery):,}; mAP by chance {points(result.chance_map)}"),
    ]
    if evaluation.rerank is not None:
        rerank = evaluation.rerank
        lines.append(("re-ranking", f"k1 {rerank.k1}, k2 {rerank.k2}, λ {rerank.original_weight:g}"))
    return lines + [("note", note) for note in evaluation.notes]


def sheets(evaluation: Evaluation) -> list[Sheet]:
    """All tables of an evaluation: retrieval, verification, camera pairs, missing modalities."""
    result = [_retrieval(evaluation)]
    if any(scores.operating_points for scores in evaluation.features.values()):
        result.append(_verification(evaluation))
    for kind in evaluation.features:
        if given := [rates for rates in evaluation.thresholds if rates.kind == kind]:
            result.append(_given_thresholds(kind, given, evaluation.modalities))
    for kind, scores in evaluation.features.items():
        pairs = scores.camera_pairs
        query, gallery = ([str(c) for c in side] for side in (pairs.query_cameras, pairs.gallery_cameras))
        result.append(_matrix(f"mAP per camera pair ({kind})", kind, query, gallery, pairs.map))
    for kind, matrix in evaluation.missing.items():
        names = [subset_name(s, evaluation.modalities) for s in matrix.subsets]
        title = f"mAP with missing modalities ({kind}, {chance_text(matrix)})"
        result.append(_matrix(title, kind, names, names, matrix.map))
        result.append(_matrix(f"rank-1 with missing modalities ({kind})", kind, names, names, matrix.rank1))
        title = f"threshold of the score for 1 % false matches ({kind})"
        result.append(_matrix(title, kind, names, names, matrix.thresholds, threshold_text))
        if matrix.mixed is not None:
            result.append(_mixed(kind, matrix.mixed))
    return result


def _retrieval(evaluation: Evaluation) -> Sheet:
    rows = []
    for kind, scores in evaluation.features.items():
        rows.append(figures(kind, scores.result, scores.interval))
        if scores.reranked is not None:
            rows.append(figures("+ re-ranked", scores.reranked, None))
    return Sheet("retrieval", FIGURES, tuple(rows))


def figures(name: str, result: RetrievalResult, interval: Interval | None) -> tuple[str, ...]:
    """A row of `FIGURES`, in points of 100."""
    bounds = NOTHING
    if interval is not None and not np.isnan(interval.low):
        bounds = f"{points(interval.low)}–{points(interval.high)}"
    ranks = (points(result.rank(k)) for k in RANKS)
    return (name, points(result.map), bounds, points(result.minp), *ranks)


def _verification(evaluation: Evaluation) -> Sheet:
    """True match rates and thresholds; a star marks rates that the false pairs are too few for."""
    rates = [p.false_match_rate for p in evaluation.scores.operating_points]
    columns = ["feature"]
    for rate in rates:
        columns += [f"at {rate:.0e}".replace("e-0", "e-"), "score"]
    rows = []
    for kind, scores in evaluation.features.items():
        cells = [kind]
        for point in scores.operating_points:
            star = "" if point.supported else "*"
            cells.append(f"{points(point.true_match_rate)}{star}")
            cells.append(NOTHING if point.threshold is None else threshold_text(point.threshold))
        rows.append(tuple(cells))
    few = any(not p.supported for s in evaluation.features.values() for p in s.operating_points)
    title = "true match rate at a false match rate, threshold"
    return Sheet(title + ("; * too few pairs" if few else ""), tuple(columns), tuple(rows))


def _given_thresholds(kind: str, given: Sequence[ThresholdRates], modalities: Subset) -> Sheet:
    """What thresholds from elsewhere do here."""
    columns = ("query", "gallery", "score", "chosen for", "false matches", "true matches")
    rows = []
    for rates in given:
        sides = (subset_name(side, modalities) for side in (rates.query, rates.gallery))
        chosen = NOTHING if rates.chosen_rate is None else f"{100 * rates.chosen_rate:g} %"
        shares = (_percent(rates.false_match_rate), _percent(rates.true_match_rate))
        rows.append((*sides, threshold_text(rates.threshold), chosen, *shares))
    return Sheet(f"given thresholds, applied to this data ({kind})", columns, tuple(rows), kind)


def _percent(share: float) -> str:
    """A share with three significant digits, as rates of false matches may be small."""
    return NOTHING if np.isnan(share) else f"{100 * share:#.3g} %"


def _matrix(
    title: str,
    kind: str,
    query: Sequence[str],
    gallery: Sequence[str],
    values: Doubles,
    text: Callable[[float], str] = points,
) -> Sheet:
    """Figures of pairs of what queries and gallery are."""
    cells = tuple((name, *map(text, row)) for name, row in zip(query, values.tolist(), strict=True))
    return Sheet(title, ("query \\ gallery", *gallery), cells, kind)


def _mixed(kind: str, mixed: MixedGallery) -> Sheet:
    """A mix of subsets beside the mean of the uniform ones."""
    columns = ("mAP in the mix", "mean of uniform pairs", "rank-1", "same subset in first 10", "by chance")
    shares = (mixed.map, mixed.uniform_map, mixed.rank1, mixed.equal_share, mixed.equal_chance)
    title = f"mixed gallery: a random subset for each sample ({kind})"
    return Sheet(title, columns, (tuple(map(points, shares)),), kind)


def threshold_text(threshold: float) -> str:
    """A threshold with all the digits it needs to give the rates beside it; a dash for NaN."""
    if np.isnan(threshold):
        return NOTHING
    digits = max(4, -Decimal(repr(threshold)).as_tuple().exponent)  # type: ignore[operator]
    return f"{threshold:.{digits}f}"


def to_markdown(evaluation: Evaluation) -> str:
    """The whole evaluation as a page; shares in points of 100."""
    parts = [
        f"# Evaluation on {escaped(evaluation.dataset)}\n",
        markdown_table(("", ""), facts(evaluation), numbers=False),
    ]
    for sheet in sheets(evaluation):
        title = sheet.title if sheet.title.startswith("mAP") else sheet.title[0].upper() + sheet.title[1:]
        parts += [f"## {escaped(title)}\n", markdown_table(sheet.columns, sheet.rows)]
    parts.append("Shares in points of 100. Intervals: 95 %, bootstrap over identities.\n")
    return "\n".join(parts)


def to_csv(evaluation: Evaluation) -> str:
    """All figures in long form, one per row, with what they are of; shares are 0 to 1, empty = none."""
    constant = [getattr(evaluation, name) for name in _CONSTANT]
    rows = (
        [*constant, *names, None if isinstance(value, float) and np.isnan(value) else value]
        for *names, value in _long(evaluation)
    )
    return csv_text([[*_CONSTANT, *_VARYING], *rows])


Long = tuple[str, str, str, str, str, float | int]


def _long(evaluation: Evaluation) -> Iterator[Long]:
    shown = subset_name(evaluation.modalities, evaluation.modalities)
    for kind, scores in evaluation.features.items():
        yield from _long_result(kind, "plain", shown, scores.result)
        yield (kind, "plain", shown, shown, "map_low", scores.interval.low)
        yield (kind, "plain", shown, shown, "map_high", scores.interval.high)
        for point in scores.operating_points:
            at = f"{point.false_match_rate:g}"
            threshold = float("nan") if point.threshold is None else point.threshold
            yield (kind, "plain", shown, shown, f"threshold@{at}", threshold)
            yield (kind, "plain", shown, shown, f"true_match_rate@{at}", point.true_match_rate)
        if scores.reranked is not None:
            yield from _long_result(kind, "reranked", shown, scores.reranked)
        pairs = scores.camera_pairs
        for a, query in enumerate(pairs.query_cameras.tolist()):
            for b, gallery in enumerate(pairs.gallery_cameras.tolist()):
                yield (kind, "plain", f"camera {query}", f"camera {gallery}", "map", float(pairs.map[a, b]))
    for rates in evaluation.thresholds:
        query, gallery = (subset_name(side, evaluation.modalities) for side in (rates.query, rates.gallery))
        for figure in ("true_match_rate", "false_match_rate"):
            at = f"{figure}@score {rates.threshold!r}"
            yield (rates.kind, "plain", query, gallery, at, getattr(rates, figure))
    for kind, matrix in evaluation.missing.items():
        yield from _long_matrix(kind, matrix, evaluation.modalities)


def _long_result(kind: str, ranking: str, shown: str, result: RetrievalResult) -> Iterator[Long]:
    figures: dict[str, float | int] = {"map": result.map, "minp": result.minp}
    figures |= {f"rank{k}": result.rank(k) for k in RANKS}
    figures |= {"valid_queries": result.valid_queries, "skipped_queries": result.skipped_queries}
    figures["chance_map"] = result.chance_map
    for name, value in figures.items():
        yield (kind, ranking, shown, shown, name, value)


def _long_matrix(kind: str, matrix: MissingMatrix, modalities: Sequence[str]) -> Iterator[Long]:
    names = [subset_name(s, modalities) for s in matrix.subsets]
    for a, query in enumerate(names):
        for b, gallery in enumerate(names):
            yield (kind, "missing", query, gallery, "map", float(matrix.map[a, b]))
            yield (kind, "missing", query, gallery, "rank1", float(matrix.rank1[a, b]))
            yield (kind, "missing", query, gallery, "chance_map", float(matrix.chances[a, b]))
            yield (kind, "missing", query, gallery, "valid_queries", int(matrix.valid_queries[a, b]))
            yield (kind, "missing", query, gallery, "threshold@0.01", float(matrix.thresholds[a, b]))
            yield (kind, "missing", query, gallery, "true_match_rate@0.01", float(matrix.true_rates[a, b]))
    if matrix.mixed is not None:
        for name, value in asdict(matrix.mixed).items():
            if isinstance(value, float):
                yield (kind, "missing", "mixed", "mixed", name, value)


def dump(value: Any, indent: str = "") -> str:
    """JSON with one key per line, but long rows of numbers and texts on one line each."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        named = ((json.dumps(str(key), ensure_ascii=False), item) for key, item in value.items())
        return "{\n" + ",\n".join(f"{inner}{k}: {dump(v, inner)}" for k, v in named) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (list, Mapping)) for item in value):
        return "[\n" + ",\n".join(f"{inner}{dump(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
