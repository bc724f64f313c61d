"""The tables of a report: headline, comparison, thresholds, camera pairs, facts of each run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slimreid.errors import DataError
from slimreid.evaluation.bootstrap import PairedDifference, paired_bootstrap
from slimreid.evaluation.camera_pairs import CameraPairs
from slimreid.evaluation.points import interval_points, points, signed_interval, signed_points
from slimreid.evaluation.writing import RANKS
from slimreid.loading import CHOSEN_ON_TEST
from slimreid.modalities import describe
from slimreid.visual.report_html import Html, element, facts, join, paragraph, table, tiles
from slimreid.visual.report_run import ReportRun, shown_path

KINDS = {
    "original": "original: the backbone's global features",
    "slimmed": "slimmed: the few tokens that are left",
    "fused": "fused: HDM, with or without experts",
    "both": "both branches together",
}
CHOICES = {
    "val": "best epoch on the validation identities",
    "test": "best epoch on the test set itself",
    "last": "last epoch, nothing was chosen",
}


def headline_tiles(run: ReportRun) -> Html:
    """The figures of one run, large."""
    result, summary = run.scores.result, run.summary
    return tiles(
        [
            (f"mAP, 95 % interval {interval_points(run.scores.interval)}", points(result.map)),
            ("rank-1: the first answer is right", f"{points(result.rank(1))} %"),
            ("mINP: how soon the last one is found", points(result.minp)),
            ("mAP by chance", points(result.chance_map)),
            (f"queries that count, {result.skipped_queries:,} skipped", f"{result.valid_queries:,}"),
            (f"million parameters, {summary.gflops:.2f} GFLOPs", f"{summary.parameters / 1e6:.2f}"),
        ]
    )


def headline_table(runs: Sequence[ReportRun]) -> Html:
    """One row per run; the best of each column in bold."""
    columns = [
        "run",
        "mAP",
        "95 % interval",
        "rank-1",
        "mINP",
        "chance",
        "queries (skipped)",
        "parameters",
        "GFLOPs",
        "checkpoint",
    ]
    rows = []
    for run in runs:
        result, summary = run.scores.result, run.summary
        rows.append(
            [
                run.name,
                points(result.map),
                interval_points(run.scores.interval),
                points(result.rank(1)),
                points(result.minp),
                points(result.chance_map),
                f"{result.valid_queries:,} ({result.skipped_queries:,})",
                f"{summary.parameters / 1e6:.2f} M",
                f"{summary.gflops:.3f}",
                checkpoint(run),
            ]
        )
    results = [run.scores.result for run in runs]
    figures = {1: [r.map for r in results], 3: [r.rank(1) for r in results], 4: [r.minp for r in results]}
    caption = "In points of 100. The interval is over identities, chance is a random order of the gallery."
    return table(columns, rows, caption, best=dict.fromkeys(figures, max), values=figures)


def checkpoint(run: ReportRun) -> Html:
    """Which epoch, chosen on what; a choice on the test set is marked."""
    chosen = run.evaluation.select_on
    text = f"epoch {run.evaluation.epoch}, {'last' if chosen == 'last' else f'by {chosen}'}"
    return element("strong", f"⚠ {text}") if chosen == "test" else element("span", text)


def comparison_table(runs: Sequence[ReportRun]) -> Html:
    """mAP of each run minus that of the first, on the same resampled identities."""
    first, rows = runs[0], []
    for run in runs[1:]:
        try:
            difference = paired_bootstrap(first.scores.result, run.scores.result)
        except DataError as error:
            rows.append([run.name, "–", "–", str(error)])
            continue
        cells = [signed_points(difference.value), signed_interval(difference), verdict(difference)]
        rows.append([run.name, *cells])
    caption = (
        f"Difference in mAP to {first.name}, in points: the same queries, identities resampled in pairs."
    )
    return table(["run", "difference", "95 % interval", "says"], rows, caption)


def verdict(difference: PairedDifference) -> str:
    """What the interval says in a word."""
    if not difference.clear:
        return "no clear difference"
    return "better" if difference.value > 0 else "worse"


def verdict_sentence(first: ReportRun, other: ReportRun) -> str:
    """How another run compares with the first, in a sentence."""
    text = f"{other.name} has {points(other.scores.result.map)}"
    try:
        difference = paired_bootstrap(first.scores.result, other.scores.result)
    except DataError:
        return f"{text}, measured on other queries."
    return f"{text}: {verdict(difference)} ({signed_interval(difference)} points, 95\u00a0%\u00a0interval)."


def kinds_table(runs: Sequence[ReportRun]) -> Html:
    """Every kind of feature of every run."""
    rows = []
    for run in runs:
        for kind, scores in run.evaluation.features.items():
            result = scores.result
            cells = [points(result.map), interval_points(scores.interval)]
            cells += [points(result.rank(k)) for k in RANKS] + [points(result.minp)]
            reranked = points(scores.reranked.map) if scores.reranked else "–"
            size = f"{run.loaded.model.sizes[kind]:,}"
            rows.append([f"{run.name}: {kind}" if len(runs) > 1 else kind, size, *cells, reranked])
    ranks = [f"rank-{k}" for k in RANKS]
    columns = ["feature", "size", "mAP", "95 % interval", *ranks, "mINP", "mAP re-ranked"]
    if not any(s.reranked for run in runs for s in run.evaluation.features.values()):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    shown = dict.fromkeys(kind for run in runs for kind in run.evaluation.features)
    return table(columns, rows, "; ".join(KINDS.get(kind, kind) for kind in shown) + ".")


def thresholds_table(runs: Sequence[ReportRun]) -> Html:
    """Where to set the threshold for a false match rate, and what it costs."""
    rows = []
    for run in runs:
        for point in run.scores.operating_points:
            threshold = "none" if point.threshold is None else f"{point.threshold:.4f}"
            mark = "" if point.supported else " *"
            cells = [f"{100 * point.true_match_rate:.1f} %", f"{100 * point.measured_false_match_rate:.4f} %"]
            rows.append([run.name, f"{100 * point.false_match_rate:g} %{mark}", threshold, *cells])
    few = any(not point.supported for run in runs for point in run.scores.operating_points)
    note = " * Fewer false pairs than this rate needs: read it with care." if few else ""
    columns = ["run", "false matches allowed", "threshold (cosine)", "true matches", "false matches measured"]
    return table(columns, rows, f"Call two samples the same from this score on.{note}")


def camera_table(pairs: CameraPairs, name: str) -> Html:
    """mAP per pair of cameras, with the queries behind each figure."""
    cameras = [str(camera) for camera in pairs.gallery_cameras]
    rows = []
    for a, camera in enumerate(pairs.query_cameras):
        cells = [
            "–" if np.isnan(value) else Html(f"{points(float(value))} <small>({queries:,})</small>")
            for value, queries in zip(pairs.map[a], pairs.queries[a].tolist(), strict=True)
        ]
        rows.append([f"camera {camera}", *cells])
    caption = (
        f"{name}: mAP of queries of one camera (rows) searched in another (columns); queries in brackets."
    )
    return table(["query from", *(f"in camera {camera}" for camera in cameras)], rows, caption)


def selection_note(runs: Sequence[ReportRun]) -> Html:
    """How checkpoints were chosen, and everything else a reader of the figures must know."""
    notes = [
        paragraph(element("strong", f"{run.name}: "), f"{note}.", class_="note")
        for run in runs
        for note in dict.fromkeys(run.evaluation.notes)
    ]
    marked = {run.name for run in runs if any(CHOSEN_ON_TEST in note for note in run.evaluation.notes)}
    notes += [
        paragraph(element("strong", f"{run.name}: "), f"{CHOSEN_ON_TEST}.", class_="note")
        for run in runs
        if run.evaluation.select_on == "test" and run.name not in marked
    ]
    return join(*notes)


def facts_of(run: ReportRun) -> Html:
    """Where the figures of a run come from."""
    evaluation, config = run.evaluation, run.loaded.config
    spectra = ", ".join(f"{describe(name).label} ({name})" for name in evaluation.modalities)
    rows: list[tuple[object, object]] = [
        ("data", f"{evaluation.dataset}: {shown_path(run.data.path)}"),
        ("origin of the pixels", evaluation.origin or "not stated in the manifest"),
        ("spectra", spectra),
        ("search", f"{len(evaluation.query):,} queries in a gallery of {len(evaluation.gallery):,}"),
        ("protocol", PROTOCOLS[evaluation.protocol]),
        ("trained on", f"{len(run.loaded.identities):,} identities, {len(run.loaded.cameras):,} cameras"),
        ("checkpoint", f"epoch {evaluation.epoch} of {config.train.epochs}: {CHOICES[evaluation.select_on]}"),
        ("model", f"{config.model.backbone}, fusion {config.model.fusion}, {size_of(run)}"),
        ("seed", config.seed),
    ]
    if run.seconds:
        total = sum(run.seconds)
        rows.append(("training", f"{total / 60:.1f} min, {run.images_per_second:.0f} images/s"))
    if run.starts:
        last = run.starts[-1]
        versions = last.get("versions", {})
        rows.append(
            (
                "software",
                ", ".join(f"{n} {versions[n]}" for n in ("slimreid", "torch", "python") if n in versions),
            )
        )
        commit, *changes = (last.get("git_commit") or "no checkout").split("+")
        rows.append(("source", "+".join([commit[:12], *changes])))
        rows.append(("machine", f"{last.get('platform', '?')}, {last.get('device', '?')}"))
    rows.append(("fingerprint of the weights", element("code", run.loaded.fingerprint[:16])))
    return facts(rows)


def size_of(run: ReportRun) -> str:
    """Height × width of the images, as the model sees them."""
    height, width = run.loaded.config.transforms.size
    return f"{height}×{width} pixels"


PROTOCOLS = {
    "camera": "a query ignores gallery images of its identity from its own camera",
    "scene": "a query ignores gallery images of its identity from its own scene",
    "none": "a query ignores only itself",
}
