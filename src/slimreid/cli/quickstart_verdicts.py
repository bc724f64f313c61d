"""What the quickstart's figures say: each sentence follows from an interval or ratio of that run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slimreid.evaluation import paired_bootstrap
from slimreid.evaluation.reports.formatting import interval_points, points, signed_interval, signed_points
from slimreid.files import write_text
from slimreid.modalities import subset_name
from slimreid.models.reid_model import build_model
from slimreid.profiling.latency import embedder, measure_interleaved, median_ratios, random_batch
from slimreid.visual.html.run import ReportRun

SPEED_BACKBONE, SPEED_SIZE = "vit_s16", (256, 128)
"""Throughput is measured at the size of real use: on the quickstart's tiny backbone overhead would decide."""
SPEED_SETTING = f"{SPEED_BACKBONE} at {SPEED_SIZE[0]}×{SPEED_SIZE[1]}"


def speed_ratios(
    runs: Sequence[ReportRun], cache: Path, *, batch: int = 4, rounds: int = 5
) -> dict[str, float]:
    """Throughput of each model's design relative to the first, kept in `cache` for the same weights.

    The designs are built on `SPEED_BACKBONE` with random weights and take turns, so that a busy moment
    of the machine slows all of them.
    """
    key = {run.name: run.loaded.fingerprint for run in runs}
    if cache.is_file():
        stored = json.loads(cache.read_text(encoding="utf-8"))
        if stored.get("models") == key:
            return dict(stored["ratios"])
    passes = {}
    for run in runs:
        options = replace(run.loaded.config.model, backbone=SPEED_BACKBONE, pretrained=None)
        model = build_model(options, SPEED_SIZE, run.loaded.modalities, num_classes=1).eval()
        passes[run.name] = embedder(model, *random_batch(model, batch))
    ratios = median_ratios(measure_interleaved(passes, rounds), runs[0].name)
    write_text(cache, json.dumps({"models": key, "setting": SPEED_SETTING, "ratios": ratios}, indent=1))
    return ratios


def verdicts(runs: Sequence[ReportRun], speed: Mapping[str, float]) -> list[str]:
    """One sentence on the modalities, and one for each model on how it differs from the first."""
    return [modalities_verdict(runs[0]), *(model_verdict(runs[0], run, speed[run.name]) for run in runs[1:])]


def modalities_verdict(run: ReportRun) -> str:
    """Whether all modalities retrieve more than the best part of them."""
    matrix, interval = run.evaluation.missing[run.evaluation.main], run.scores.interval
    parts = list(zip(matrix.subsets, matrix.map.diagonal().tolist(), strict=True))[:-1]
    subset, best = max(parts, key=lambda part: part[1])
    clear = best < interval.low
    return (
        f"all modalities: mAP {points(run.scores.result.map)} (95 % {interval_points(interval)}) against "
        f"{points(best)} for the best subset ({subset_name(subset, run.evaluation.modalities)}): "
        f"{'clearly better' if clear else 'no clear difference in this run'}"
    )


def model_verdict(first: ReportRun, run: ReportRun, speed: float) -> str:
    """How a model differs from the first in accuracy, computation and throughput."""
    difference = paired_bootstrap(first.scores.result, run.scores.result)
    if difference.low > 0:
        word = "clearly better"
    elif difference.high < 0:
        word = "clearly worse"
    else:
        word = "no clear difference in this run"
    training = run.loaded.config.train
    longer = f" after {training.epochs} more epochs" if training.init_from else ""
    cost = run.summary.gflops / first.summary.gflops
    return (
        f"{run.name} against {first.name}: mAP {signed_points(difference.value)} "
        f"(95 % {signed_interval(difference)}), {word}{longer}; {cost:.2f} × the GFLOPs, "
        f"{speed:.2f} × the throughput ({SPEED_SETTING})"
    )
