"""A comparison as a table: Markdown, CSV, JSON, and cells for the terminal. Figures are points of 100."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from slimreid.errors import ConfigError
from slimreid.evaluation.reports.formatting import (
    NOTHING,
    interval_points,
    markdown_table,
    points,
    signed_interval,
    signed_points,
)
from slimreid.files import csv_text, write_text
from slimreid.runs.comparison import Comparison, Row, Spread

FIGURES = ("model", "seeds", "mAP", "95 % interval", "rank-1", "mINP", "Δ mAP", "Δ 95 %")
COST = ("parameters", "GFLOPs", "images/s")


def headings(comparison: Comparison) -> list[str]:
    """Names of the columns; those that no row has anything for are left out."""
    found = list(FIGURES if any(row.difference for row in comparison.rows) else FIGURES[:-2])
    has_speed = any(row.images_per_second for row in comparison.rows)
    return [*found, *(COST if has_speed else COST[:-1])]


def cells(row: Row, columns: Sequence[str]) -> list[str]:
    """The cells of a row, as text; a star where a difference of 0 is outside the interval."""
    delta = row.difference
    values = {
        "model": f"{row.label} †" if row.on_test else row.label,
        "seeds": str(len(row.seeds)),
        "mAP": spread_text(row.map),
        "95 % interval": interval_points(row.interval) if row.interval else "",
        "rank-1": spread_text(row.rank1),
        "mINP": spread_text(row.minp),
        "Δ mAP": signed_points(delta.value) if delta else "",
        "Δ 95 %": f"{signed_interval(delta)}{' *' if delta.clear else ''}" if delta else "",
        "parameters": NOTHING if row.parameters is None else f"{row.parameters / 1e6:,.2f} M",
        "GFLOPs": NOTHING if row.gflops is None else f"{row.gflops:,.3g}",
        "images/s": f"{row.images_per_second:,.1f}" if row.images_per_second else "",
    }
    return [values[column] for column in columns]


def spread_text(spread: Spread) -> str:
    """`61.2 ± 0.8`, or `61.2` for one seed."""
    text = points(spread.mean)
    return text if spread.std is None else f"{text} ± {points(spread.std)}"


def caption(comparison: Comparison) -> list[str]:
    """The lines under a table: what was measured, and what its signs mean."""
    lines = [
        f"Feature '{comparison.feature}', {comparison.data}: {comparison.queries} queries in a gallery of "
        f"{comparison.gallery}, protocol {comparison.protocol}; points of 100, ± over seeds, intervals over "
        "identities."
    ]
    if any(row.difference for row in comparison.rows):
        lines.append(
            f"Δ is against {comparison.rows[0].label}, on the same resampled identities; * = 0 is outside."
        )
    return [*lines, *comparison.notes]


def to_markdown(comparison: Comparison) -> str:
    """A table and its caption."""
    columns = headings(comparison)
    table = markdown_table(columns, [cells(row, columns) for row in comparison.rows])
    return "\n".join([table, *caption(comparison)]) + "\n"


def to_csv(comparison: Comparison) -> str:
    """One row per model, figures 0 to 1."""
    rows = [_plain_row(row) for row in comparison.rows]
    return csv_text([list(rows[0]), *(row.values() for row in rows)])


def _plain_row(row: Row) -> dict[str, object]:
    """Column -> value; None becomes an empty cell."""
    found: dict[str, object] = {"model": row.label, "seeds": " ".join(map(str, row.seeds))}
    for name in ("map", "rank1", "minp"):
        spread: Spread = getattr(row, name)
        found |= {name: spread.mean, f"{name}_std": spread.std}
    interval, delta = row.interval, row.difference
    found |= {"map_low": interval and interval.low, "map_high": interval and interval.high}
    found |= {"difference": delta and delta.value}
    found |= {"difference_low": delta and delta.low, "difference_high": delta and delta.high}
    found |= {"parameters": row.parameters, "gflops": row.gflops, "images_per_second": row.images_per_second}
    return {**found, "chosen_on_test": int(row.on_test)}


def to_json(comparison: Comparison) -> str:
    """Everything, figures 0 to 1."""
    return json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) + "\n"


WRITERS = {".md": to_markdown, ".csv": to_csv, ".json": to_json}
"""By the ending of the file."""


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write a comparison in the format that the file's name ends in; raises `ConfigError` for others."""
    if path.suffix.lower() not in WRITERS:
        raise ConfigError(f"{path}: a comparison can be written as .md, .csv or .json")
    write_text(path, WRITERS[path.suffix.lower()](comparison))
