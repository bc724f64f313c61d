"""Results of the test on other looks as tables in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from look_results import ALL_LOOKS, LookResult, compare

from slimreid.cli.console import print_table, say
from slimreid.evaluation.reports.formatting import NOTHING, points, signed_interval, signed_points


def print_results(results: Sequence[LookResult]) -> None:
    """One table per model; those after the first also against it."""
    first = results[0]
    for result in results:
        print_result(result)
        if result is not first:
            print_comparison(first, result)


def print_result(result: LookResult) -> None:
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
    columns = ("look", "mAP", "95 %", "R-1", "% of clean", "false %", "true %")
    facts = result.facts
    title = f"{result.name}: {facts['data']}, {facts['queries']} queries in {facts['gallery']}"
    print_table(columns, rows, title)
    summary = result.summary()
    means = [f"{kind} {100 * share:.1f} %" for kind, share in summary["mean_share"].items()]
    if means:
        say(f"mean share of the clean mAP: {', '.join(means)}; worst: {summary['worst']}")


def print_comparison(first: LookResult, second: LookResult) -> None:
    """Differences of the mAP with their intervals; * where 0 lies outside."""
    rows = []
    for name, difference in compare(first, second).items():
        before = points(first.looks[name].map) if name != ALL_LOOKS else NOTHING
        after = points(second.looks[name].map) if name != ALL_LOOKS else NOTHING
        clear = " *" if difference.clear else ""
        signed = signed_points(difference.value)
        rows.append((name, before, after, signed, f"{signed_interval(difference)}{clear}"))
    columns = ("look", first.name, second.name, "Δ mAP", "Δ 95 %")
    print_table(columns, rows, f"{second.name} against {first.name}")


def _rate(share: float) -> str:
    return NOTHING if math.isnan(share) else f"{100 * share:.2f}"
