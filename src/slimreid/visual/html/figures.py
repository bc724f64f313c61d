"""The sections of a report that show curves and maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slimreid.errors import DataError
from slimreid.evaluation.metrics.retrieval import CameraPairs
from slimreid.evaluation.reports.formatting import points
from slimreid.evaluation.reports.missing import DRAWS
from slimreid.evaluation.reports.writing import chance_text, threshold_text
from slimreid.modalities import subset_name
from slimreid.visual.html.parts import Cell, Section, Table, plot, section
from slimreid.visual.html.run import ReportRun
from slimreid.visual.plots.curves import cmc_curves, loss_curves, map_curves
from slimreid.visual.plots.embedding_map import embedding_map
from slimreid.visual.plots.heatmap import missing_heatmap
from slimreid.visual.plots.pair_curves import roc_curves, score_histograms

Runs = Sequence[ReportRun]


def training_section(runs: Runs) -> Section | None:
    """Losses and mAP over training; None for models without the files of their run."""
    rows = {run.name: run.metrics for run in runs if run.metrics}
    if not rows:
        return None
    names = ", ".join(rows)
    plots = [plot(loss_curves(rows), f"Training losses over updates of {names}", "Losses per update.")]
    if any(row.get("val") or row.get("test") for found in rows.values() for row in found):
        caption = "mAP after each epoch; the ring marks the epoch that was chosen."
        plots.append(plot(map_curves(rows), f"mAP over epochs of {names}", caption))
    return section("training", "Training", "Training", plots=plots)


def retrieval_section(runs: Runs) -> Section:
    """CMC and pairs of cameras."""
    results = {run.name: run.scores.result for run in runs}
    told = "; ".join(
        f"{name}: rank-1 {points(r.rank(1))}, rank-10 {points(r.rank(10))}" for name, r in results.items()
    )
    caption = "Queries with a correct match among the first k."
    cmc = plot(cmc_curves(results), f"Cumulative match curve. {told}", caption)
    cameras = {run.name: camera_table(run.scores.camera_pairs) for run in runs}
    return section("retrieval", "Retrieval", "Retrieval", cmc=cmc, cameras=cameras)


def camera_table(pairs: CameraPairs) -> Table:
    """mAP per pair of cameras, with the queries behind each figure."""
    rows: list[list[str | Cell]] = []
    for a, camera in enumerate(pairs.query_cameras):
        cells: list[str | Cell] = [f"from {camera}"]
        for value, queries in zip(pairs.map[a].tolist(), pairs.queries[a].tolist(), strict=True):
            cells.append("–" if np.isnan(value) else Cell(points(value), f"({queries:,})"))
        rows.append(cells)
    return Table(["camera", *(f"in {camera}" for camera in pairs.gallery_cameras)], rows)


def verification_section(runs: Runs) -> Section | None:
    """ROC, thresholds and score histograms; None without false pairs."""
    found = {run.name: run.scores.roc for run in runs if run.scores.roc}
    if not found:
        return None
    names = ", ".join(found)
    told = f"ROC curves of {names}; the operating points are in the table below"
    caption = "True match rate against false match rate; dots are the operating points of the table."
    roc = plot(roc_curves(found), told, caption)
    told = f"Histograms of the scores of true and of false pairs of {names}"
    caption = "Scores of true and false pairs: the less they overlap, the better one threshold works."
    histograms = plot(score_histograms(found), told, caption)
    values = {"roc": roc, "scores": histograms, "thresholds": thresholds_table(runs)}
    return section("verification", "Verification", "Verification", **values)


def thresholds_table(runs: Runs) -> Table:
    """The threshold for a false match rate, and the true matches it leaves."""
    rows = []
    for run in runs:
        for point in run.scores.operating_points:
            threshold = "none" if point.threshold is None else threshold_text(point.threshold)
            mark = "" if point.supported else " *"
            cells = [f"{100 * point.true_match_rate:.1f} %", f"{100 * point.measured_false_match_rate:.4f} %"]
            rows.append([run.name, f"{100 * point.false_match_rate:g} %{mark}", threshold, *cells])
    few = any(not point.supported for run in runs for point in run.scores.operating_points)
    columns = ["run", "false match rate", "threshold (score)", "true match rate", "measured false match rate"]
    caption = "Two samples count as the same from this score on, at the site where it was measured."
    if few:
        caption += " * Too few false pairs to measure this rate well."
    return Table(columns, rows, caption)


def missing_section(runs: Runs) -> Section | None:
    """The missing-modality matrix of each run; None where there is one modality only."""
    plots = {}
    for run in runs:
        matrix = run.evaluation.missing.get(run.evaluation.main)
        if matrix is None or len(matrix.subsets) < 2:
            continue
        names = [subset_name(subset, run.evaluation.modalities) for subset in matrix.subsets]
        told = _told_missing(run)
        drawn = missing_heatmap({"": matrix.map}, names, chance=matrix.chances)
        plots[run.name] = plot(drawn, f"mAP of {run.name} for all subsets of modalities. {told}", told)
    if not plots:
        return None
    modalities = runs[0].evaluation.modalities
    letters = ", ".join(f"{subset_name((m,), modalities)} = {m}" for m in modalities)
    values = {"letters": letters, "plots": plots, "mixed": mixed_table(runs)}
    return section("missing", "Missing modalities", "Missing", **values)


def mixed_table(runs: Runs) -> Table | None:
    """Retrieval when each sample is seen in another subset of the modalities; None where that is unknown."""
    rows = []
    for run in runs:
        matrix = run.evaluation.missing.get(run.evaluation.main)
        if matrix is not None and (mixed := matrix.mixed) is not None:
            shares = (mixed.map, mixed.uniform_map, mixed.rank1, mixed.equal_share, mixed.equal_chance)
            rows.append([run.name, *map(points, shares)])
    columns = ["run", "mAP", "mean of all cells", "rank‑1", "same subset in first ten", "by chance"]
    caption = (
        "Mixed gallery: each sample, query or gallery, is seen in a random subset of the modalities (mean of "
        f"{DRAWS} draws). If a model ranks by modality instead of identity, more of the first "
        "ten results have exactly the query's subset than by chance. Hatched cells count by chance."
    )
    return Table(columns, rows, caption) if rows else None


def _told_missing(run: ReportRun) -> str:
    """The matrix in a sentence: everything, the best smaller subset, the worst pair."""
    matrix = run.evaluation.missing[run.evaluation.main]
    equal = np.diag(matrix.map)
    names = ["+".join(subset) for subset in matrix.subsets]
    text = f"All modalities on both sides: {points(float(equal[-1]))}"
    if np.isfinite(equal[:-1]).any():
        best = int(np.nanargmax(equal[:-1]))
        text += f"; {names[best]} on both: {points(float(equal[best]))}"
    if np.isfinite(matrix.map).any():
        a, b = np.unravel_index(int(np.nanargmin(matrix.map)), matrix.map.shape)
        text += f"; hardest, {names[a]} in {names[b]}: {points(float(matrix.map[a, b]))}"
    return f"{text} ({chance_text(matrix)})."


def map_section(runs: Runs) -> Section | None:
    """t-SNE of the gallery; None where there are too few samples."""
    plots = {}
    for run in runs:
        try:
            drawn = embedding_map({"": run.embeddings()})
        except DataError:
            continue
        alt = f"t-SNE map of the embeddings of {run.name}: points of one identity should lie together"
        plots[run.name] = plot(drawn, alt)
    return section("map", "Embeddings", "Embeddings", plots=plots) if plots else None
