"""The sections of a report, each for one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from slimreid.errors import DataError
from slimreid.evaluation.points import points
from slimreid.evaluation.writing import chance_text
from slimreid.modalities import subset_name
from slimreid.visual.curves import cmc_curves, loss_curves, map_curves
from slimreid.visual.embedding_map import embedding_map
from slimreid.visual.heatmap import missing_heatmap
from slimreid.visual.pair_curves import roc_curves, score_histograms
from slimreid.visual.report_html import (
    Section,
    element,
    join,
    paragraph,
    plot,
    side_by_side,
)
from slimreid.visual.report_run import ReportRun
from slimreid.visual.report_tables import (
    camera_table,
    comparison_table,
    facts_of,
    headline_table,
    headline_tiles,
    kinds_table,
    selection_note,
    thresholds_table,
)

Runs = Sequence[ReportRun]


def result_section(runs: Runs) -> Section:
    """Headline, comparison, and everything that qualifies them."""
    parts: list[object] = [headline_tiles(runs[0])] if len(runs) == 1 else []
    parts.append(headline_table(runs))
    parts.append(selection_note(runs))
    if len(runs) > 1:
        parts.append(comparison_table(runs))
    parts.append(element("h3", "By kind of feature"))
    parts.append(kinds_table(runs))
    return Section("result", "Result", "Result", join(*parts))


def origin_section(runs: Runs) -> Section:
    """What the figures were measured on, and how the checkpoint was chosen."""
    body = side_by_side({run.name: facts_of(run) for run in runs})
    return Section("origin", "Where the figures come from", "Origin", body)


def training_section(runs: Runs) -> Section | None:
    """Losses and mAP over training; None for models without the files of their run."""
    rows = {run.name: run.metrics for run in runs if run.metrics}
    if not rows:
        return None
    names = ", ".join(rows)
    parts = [
        plot(partial(loss_curves, rows), f"Training losses over updates of {names}", "Losses, per update.")
    ]
    if any(row.get("val") or row.get("test") for found in rows.values() for row in found):
        caption = "mAP after each epoch; the ring marks the epoch that was chosen."
        parts.append(plot(partial(map_curves, rows), f"mAP over epochs of {names}", caption))
    body = element("div", *parts, class_="side")
    return Section("training", "Training", "Training", body)


def retrieval_section(runs: Runs) -> Section:
    """CMC and pairs of cameras."""
    results = {run.name: run.scores.result for run in runs}
    told = "; ".join(
        f"{name}: rank-1 {points(r.rank(1))}, rank-10 {points(r.rank(10))}" for name, r in results.items()
    )
    caption = "How many queries have a right answer among the first k."
    tables = join(*(camera_table(run.scores.camera_pairs, run.name) for run in runs))
    body = element(
        "div",
        plot(partial(cmc_curves, results), f"Cumulative match curve. {told}", caption),
        element("div", element("h3", "From camera to camera"), tables),
        class_="side",
    )
    return Section("retrieval", "Finding again", "Finding", body)


def verification_section(runs: Runs) -> Section | None:
    """ROC, thresholds and score histograms; None without false pairs."""
    found = {run.name: run.scores.histogram for run in runs if run.scores.operating_points}
    if not found:
        return None
    names = ", ".join(found)
    pictures = element(
        "div",
        plot(
            partial(roc_curves, found),
            f"ROC curves of {names}; the operating points are in the table below",
            "Share of true pairs recognised, against the share of false pairs taken for true.",
        ),
        plot(
            partial(score_histograms, found),
            f"Histograms of the scores of true and of false pairs of {names}",
            "The further the two lie apart, the better one threshold serves all.",
        ),
        class_="side",
    )
    explained = paragraph(
        "Is it the same one or not? Every pair of a query and a gallery item, by one threshold."
    )
    return Section(
        "verification", "Same or not", "Same or not", join(explained, pictures, thresholds_table(runs))
    )


def missing_section(runs: Runs) -> Section | None:
    """The missing-modality matrix of each run; None where there is one spectrum only."""
    parts = {}
    for run in runs:
        matrix = run.evaluation.missing.get(run.evaluation.main)
        if matrix is None or len(matrix.subsets) < 2:
            continue
        names = [subset_name(subset, run.evaluation.modalities) for subset in matrix.subsets]
        drawn = partial(missing_heatmap, {"": matrix.map}, names, chance=matrix.chances)
        told = _told_missing(run)
        alt = f"mAP of {run.name} for all subsets of spectra. {told}"
        parts[run.name] = plot(drawn, alt, told)
    if not parts:
        return None
    letters = ", ".join(
        f"{subset_name((m,), runs[0].evaluation.modalities)} = {m}" for m in runs[0].evaluation.modalities
    )
    explained = paragraph(
        "mAP when the queries have only the spectra of the row and the gallery only those of the column "
        f"({letters}). No model was trained again for this."
    )
    return Section("missing", "When spectra are missing", "Missing", join(explained, side_by_side(parts)))


def _told_missing(run: ReportRun) -> str:
    """The matrix in a sentence: all spectra, the best subset, the worst pair."""
    matrix = run.evaluation.missing[run.evaluation.main]
    equal = np.diag(matrix.map)
    names = ["+".join(subset) for subset in matrix.subsets]
    text = f"With everything on both sides {points(float(equal[-1]))}"
    if np.isfinite(equal[:-1]).any():
        best = int(np.nanargmax(equal[:-1]))
        text += f", with {names[best]} alone {points(float(equal[best]))}"
    if np.isfinite(matrix.map).any():
        a, b = np.unravel_index(int(np.nanargmin(matrix.map)), matrix.map.shape)
        worst = points(float(matrix.map[a, b]))
        text += f"; hardest is {names[a]} searched in {names[b]}: {worst}"
    return f"{text} ({chance_text(matrix)})."


def map_section(runs: Runs) -> Section | None:
    """t-SNE of the gallery; None where too few samples are there."""
    parts = {}
    for run in runs:
        found = {"": run.embeddings()}
        alt = f"t-SNE map of the embeddings of {run.name}: points of one identity should lie together"
        try:
            parts[run.name] = plot(partial(embedding_map, found), alt)
        except DataError:
            continue
    if not parts:
        return None
    explained = paragraph(
        "Test samples in the plane (t-SNE): a colour and a name per identity, a marker per camera. "
        "Good embeddings gather by name; bad ones gather by camera. Distances between groups mean little."
    )
    return Section("map", "Map of embeddings", "Map", join(explained, side_by_side(parts)))
