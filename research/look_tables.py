"""Results of the test on other looks as tables, for the terminal or as Markdown for the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from look_results import ALL_LOOKS, GOAL, LookResult, compare, missed

from slimreid.cli.console import print_table, say
from slimreid.evaluation.reports.formatting import (
    NOTHING,
    markdown_table,
    points,
    signed_interval,
    signed_points,
)


@dataclass(frozen=True)
class Sheet:
    """One table with what is said below it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    below: str = ""


def sheets(results: Sequence[LookResult]) -> Iterator[Sheet]:
    """One table per model; those after the first also against it."""
    first = results[0]
    for result in results:
        yield figures_sheet(result)
        if result is not first:
            yield difference_sheet(first, result)


def figures_sheet(result: LookResult) -> Sheet:
    """The figures of one model under every look."""
    rows = [
        (
            name,
            points(found.map),
            f"{points(found.low)} to {points(found.high)}",
            points(found.rank1),
            f"{100 * result.share(name):.0f}",
            _rate(found.false_match_rate),
            points(found.true_match_rate),
        )
        for name, found in result.looks.items()
    ]
    facts, summary = result.facts, result.summary()
    seen = "+".join(facts["modalities"])
    title = f"{result.name}: {facts['data']}, {seen}, {facts['queries']} queries in {facts['gallery']}"
    said = [f"{kind} {100 * share:.1f} %" for kind, share in summary["mean_share"].items()]
    below = f"mean share of the clean mAP: {', '.join(said)}; worst: {summary['worst']}" if said else ""
    if low := missed(result):
        below += f"; degradations below {100 * GOAL:.0f} %: {', '.join(low)}"
    return Sheet(title, ("look", "mAP", "95 %", "R-1", "% of clean", "false %", "true %"), rows, below)


def difference_sheet(first: LookResult, second: LookResult) -> Sheet:
    """Differences of the mAP with their intervals; * where 0 lies outside."""
    found = compare(first, second)
    rows = []
    for name, difference in found.items():
        pair = (r.looks[name].map if name in r.looks else float("nan") for r in (first, second))
        interval = signed_interval(difference) + " *" * difference.clear
        rows.append((name, *map(points, pair), signed_points(difference.value), interval))
    worst = min(found, key=lambda name: found[name].low)
    below = f"lowest end of an interval: {signed_points(found[worst].low)} ({worst})"
    if ALL_LOOKS in found:
        below += f"; over all looks but clean: {signed_interval(found[ALL_LOOKS])}"
    columns = ("look", first.name, second.name, "Δ mAP", "Δ 95 %")
    return Sheet(f"{second.name} against {first.name}", columns, rows, below)


def print_results(results: Sequence[LookResult]) -> None:
    """Print all tables."""
    for sheet in sheets(results):
        print_table(sheet.columns, sheet.rows, sheet.title)
        if sheet.below:
            say(sheet.below)


def markdown(results: Sequence[LookResult]) -> str:
    """The same tables as Markdown."""
    return "\n".join(map(_markdown_table, sheets(results)))


def _markdown_table(sheet: Sheet) -> str:
    return f"**{sheet.title}**\n\n{markdown_table(sheet.columns, sheet.rows)}\n{sheet.below}\n"


def _rate(share: float) -> str:
    return NOTHING if math.isnan(share) else f"{100 * share:.2f}"
