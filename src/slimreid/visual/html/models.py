"""The opening of a report: what each model is, its accuracy and cost, and which differences are clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import RANKS, PairedDifference, paired_bootstrap
from slimreid.evaluation.reports.formatting import interval_points, points, signed_interval, signed_points
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.visual.html.parts import Cell, Plot, Section, Table, plot, section
from slimreid.visual.html.run import ReportRun
from slimreid.visual.plots.accuracy_cost import CostPoint, accuracy_cost_plot

Runs = Sequence[ReportRun]
Speeds = Mapping[str, float]
"""Name of the run -> images embedded per second."""

FUSIONS = {
    "none": "global features only",
    "mean": "global features and the mean of all patches",
    "hdm": "DeMo's fusion (HDM)",
    "hdm_atmoe": "DeMo's fusion with experts (HDM, ATMoE)",
}


@dataclass(frozen=True)
class ModelLine:
    """One line about a model."""

    name: str
    what: str
    accuracy: str
    against: str
    """How its mAP compares with that of the first run; empty for the first."""
    cost: str
    speed: str
    """Empty where it was not measured."""


def model_lines(runs: Runs, speeds: Speeds) -> list[ModelLine]:
    """What each model is, its accuracy, cost and speed; the others are compared with the first."""
    first = runs[0]
    lines = []
    for run in runs:
        cost, speed = f"{run.summary.gflops:.3g} GFLOPs", ""
        if run.name in speeds:
            speed = f"{speeds[run.name]:,.0f} images/s"
        if run is not first:
            cost += f" ({run.summary.gflops / first.summary.gflops:.2f}×)"
            if speed and first.name in speeds:
                speed += f" ({speeds[run.name] / speeds[first.name]:.2f}×)"
        accuracy = f"mAP {points(run.scores.result.map)} ({interval_points(run.scores.interval)})"
        lines.append(ModelLine(run.name, describe_model(run), accuracy, _against(first, run), cost, speed))
    return lines


def describe_model(run: ReportRun) -> str:
    """The backbone, and what is done with its tokens."""
    model, summary = run.loaded.config.model, run.summary
    size = f"{model.backbone} backbone, {summary.parameters / 1e6:.3g} M parameters"
    if model.reduction == "none":
        return f"{FUSIONS[model.fusion]}; {size}"
    if model.fusion != "mean":
        size = f"{FUSIONS[model.fusion]}; {size}"
    if model.reduction == "in_backbone":
        counts = " → ".join(map(str, dict.fromkeys(summary.block_tokens)))
        return f"token reduction in the backbone, {counts} tokens per image; {size}"
    stages = dict(summary.tokens)
    left = stages.get("with leftover", stages.get("merged", stages["kept"]))
    return f"token reduction after the backbone, {stages['patches']} → {left} tokens per image; {size}"


def difference(first: ReportRun, other: ReportRun) -> PairedDifference | None:
    """mAP of another run minus that of the first on the same queries; None where queries differ."""
    try:
        return paired_bootstrap(first.scores.result, other.scores.result)
    except DataError:
        return None


def _against(first: ReportRun, run: ReportRun) -> str:
    if run is first:
        return ""
    found = difference(first, run)
    if found is None:
        return f"measured on other queries than {first.name}"
    interval = f"{signed_points(found.value)} points, 95\u00a0% interval {signed_interval(found)}"
    if not found.clear:
        return f"no clear difference ({interval})"
    return f"{'better' if found.value > 0 else 'worse'} than {first.name} ({interval})"


def result_section(runs: Runs, speeds: Speeds) -> Section:
    """The figures of all models, and everything that qualifies them."""
    return section(
        "result",
        "Result",
        "Result",
        runs=runs,
        tiles=_tiles(runs[0]) if len(runs) == 1 else (),
        headline=headline_table(runs, speeds),
        cost=_cost_plot(runs) if len(runs) > 1 else None,
        notes=selection_notes(runs),
        features=features_table(runs),
    )


def _tiles(run: ReportRun) -> list[tuple[str, str]]:
    """The figures of one run, large: (value, what it is)."""
    result, summary = run.scores.result, run.summary
    return [
        (points(result.map), f"mAP, 95 % interval {interval_points(run.scores.interval)}"),
        (f"{points(result.rank(1))} %", "rank-1: queries whose first answer is right"),
        (points(result.minp), "mINP: precision at the last correct match"),
        (points(result.chance_map), "mAP of a random ranking"),
        (f"{result.valid_queries:,}", f"queries, {result.skipped_queries:,} skipped"),
        (f"{summary.gflops:.3g}", f"GFLOPs, {summary.parameters / 1e6:.3g} M parameters"),
    ]


def headline_table(runs: Runs, speeds: Speeds) -> Table:
    """One row per run; only a clear difference to the first is bold."""
    columns = ["run", "mAP", "95 % interval", f"Δ mAP to {runs[0].name}", "rank‑1", "mINP", "random"]
    columns += ["parameters", "GFLOPs", "images/s"]
    rows: list[list[str | Cell]] = []
    for run in runs:
        result, summary = run.scores.result, run.summary
        name = f"⚠ {run.name}" if run.evaluation.select_on == "test" else run.name
        found = None if run is runs[0] else difference(runs[0], run)
        delta: str | Cell = "–"
        if found is not None:
            delta = Cell(signed_points(found.value), f"({signed_interval(found)})", strong=found.clear)
        speed = f"{speeds[run.name]:,.0f}" if run.name in speeds else "–"
        shares = (points(share) for share in (result.rank(1), result.minp, result.chance_map))
        cost = (f"{summary.parameters / 1e6:.2f} M", f"{summary.gflops:.3f}", speed)
        interval = interval_points(run.scores.interval)
        rows.append([name, points(result.map), interval, delta, *shares, *cost])
    kept = [k for k in range(len(columns)) if (k != 3 or len(runs) > 1) and (speeds or k != 9)]
    caption = "mAP, rank-1 and mINP in points of 100; intervals by bootstrap over identities. "
    caption += "Random: mAP of a random ranking. GFLOPs: billions of multiply-adds per sample."
    if len(runs) > 1:
        caption += " Bold differences are clear: their paired 95 % interval excludes 0."
    if skipped := runs[0].scores.result.skipped_queries:
        caption += f" {skipped:,} queries without a correct match in the gallery are skipped."
    return Table([columns[k] for k in kept], [[row[k] for k in kept] for row in rows], caption)


def _cost_plot(runs: Runs) -> Plot:
    found = [CostPoint(r.name, r.summary.gflops, r.scores.result.map, r.scores.interval) for r in runs]
    told = "; ".join(f"{point.name}: {point.gflops:.3g} GFLOPs, mAP {points(point.map)}" for point in found)
    caption = "mAP against multiply-adds per sample; bars are 95 % intervals. Up and to the left is better."
    return plot(accuracy_cost_plot(found), f"mAP against computation. {told}", caption)


def selection_notes(runs: Runs) -> list[tuple[str, str]]:
    """(run, note): everything a reader of the figures must know."""
    notes = []
    for run in runs:
        given = list(dict.fromkeys(run.evaluation.notes))
        if run.evaluation.select_on == "test" and not any(CHOSEN_ON_TEST in note for note in given):
            given.append(CHOSEN_ON_TEST)
        notes += [(run.name, note) for note in given]
    return notes


def features_table(runs: Runs) -> Table:
    """Every kind of feature of every run."""
    rows = []
    for run in runs:
        for kind, scores in run.evaluation.features.items():
            result = scores.result
            cells = [points(result.map), interval_points(scores.interval)]
            cells += [points(result.rank(k)) for k in RANKS] + [points(result.minp)]
            reranked = points(scores.reranked.map) if scores.reranked else "–"
            size = f"{run.loaded.sizes[kind]:,}"
            rows.append([f"{run.name}: {kind}" if len(runs) > 1 else kind, size, *cells, reranked])
    ranks = [f"rank‑{k}" for k in RANKS]  # a hyphen that does not break
    columns = ["feature", "size", "mAP", "95 % interval", *ranks, "mINP", "mAP re-ranked"]
    if not any(s.reranked for run in runs for s in run.evaluation.features.values()):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    fusions = dict.fromkeys(run.loaded.config.model.fusion for run in runs)
    told = {
        "original": "original: the global features of the backbone",
        "slimmed": "slimmed: the mean of the tokens left by token reduction",
        "fused": "fused: " + " or ".join(_FUSED[name] for name in fusions if name in _FUSED),
        "both": "both: the two together",
    }
    shown = dict.fromkeys(kind for run in runs for kind in run.evaluation.features)
    return Table(columns, rows, "; ".join(told.get(kind, kind) for kind in shown) + ".")


_FUSED = {
    "mean": "the mean of all patches",
    "hdm": "DeMo's HDM",
    "hdm_atmoe": "DeMo's HDM with experts (ATMoE)",
}
