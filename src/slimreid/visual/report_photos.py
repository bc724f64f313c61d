"""The sections of a report that show photographs: what queries found, and which patches were kept."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from PIL import Image

from slimreid.models.reid_model import SLIMMED
from slimreid.visual.patch_figure import draw_kept_patches
from slimreid.visual.rank_lists import RankList, choose_queries, open_samples, result_lists
from slimreid.visual.rank_sheet import draw_rank_lists
from slimreid.visual.report_html import Html, Section, element, join, paragraph, photo, tabs
from slimreid.visual.report_run import ReportRun
from slimreid.visual.sample_views import SeenSample, open_sample
from slimreid.visual.style import Look, png_bytes

QUERIES = {"best": 2, "worst": 3, "random": 2}
"""Rank lists per run."""
LENGTH = 10
_CELL = 84
"""Height of one image of a rank list, in pixels."""
_PATCH_DPI = 108
_HEADINGS = {"best": "Best", "worst": "Worst", "random": "Drawn at random"}


def rank_section(runs: Sequence[ReportRun]) -> Section:
    """Rank lists of the best, the worst and of random queries."""
    explained = paragraph(
        "Each query with the first answers, nearest first, one spectrum below the other. Right answers have "
        "a solid frame and a tick, wrong ones a dashed frame and a cross; below are distance and camera."
    )
    body = tabs("found", {run.name: _rank_lists(run) for run in runs})
    return Section("found", "What queries found", "Examples", join(explained, body))


def _rank_lists(run: ReportRun) -> Html:
    evaluation, result = run.evaluation, run.scores.result
    chosen = choose_queries(result, **QUERIES)
    windows = run.loaded.config.data.windows
    open_query, open_item = (
        open_samples(run.manifest, run.samples(side), windows)
        for side in (evaluation.query, evaluation.gallery)
    )
    from_, to = (side.cameras.tolist() for side in (evaluation.query, evaluation.gallery))
    length = min(LENGTH, result.top_index.shape[1])
    parts: list[object] = []
    for why, queries in chosen.items():
        if not queries:
            continue
        parts.append(element("h4", _HEADINGS[why]))
        for found in result_lists(result, {why: queries}, open_query, open_item, from_, to, length):
            draw = partial(_draw_list, replace(found, title=""), evaluation.modalities)
            parts.append(photo(draw, _told(found), found.title.split(" · ", 1)[1]))
    return join(*parts)


def _draw_list(found: RankList, modalities: Sequence[str], look: Look) -> Image.Image:
    return draw_rank_lists([found], modalities, look, cell_height=_CELL)


def _told(found: RankList) -> str:
    right = [str(rank) for rank, item in enumerate(found.items, start=1) if item.right]
    what = f"right answers at ranks {', '.join(right)}" if right else "no right answer"
    return f"Rank list, {found.title}: {what} among the first {len(found.items)}"


def patches_section(runs: Sequence[ReportRun]) -> Section | None:
    """Kept patches of a few samples; None where no run slims."""
    slimming = [run for run in runs if run.loaded.model.second == SLIMMED]
    if not slimming:
        return None
    explained = paragraph(
        "What slimming sees. Per spectrum: the image, how high each source scores its patches, the score "
        "they are ranked by, which are kept (bright, framed), and what one merged token is made of."
    )
    inside = paragraph(
        "Where patches are dropped inside the backbone there is a row per stage; its kept patches are named "
        "after the first block that has no others. Patches dropped at an earlier stage are dark."
    )
    staged = any(run.loaded.model.inside is not None for run in slimming)
    alone = len(slimming) == 1 < len(runs)
    lone = paragraph(f"Of these runs only {slimming[0].name} slims.") if alone else ""
    body = tabs("patches", {run.name: _patches(run) for run in slimming})
    return Section(
        "patches", "Which patches are kept", "Patches", join(explained, inside if staged else "", lone, body)
    )


def _patches(run: ReportRun) -> Html:
    """The first sample of the best, of the worst and of a random query."""
    samples, rows = run.manifest.samples, run.evaluation.query.rows
    parts: list[object] = []
    for why, queries in choose_queries(run.scores.result, best=1, worst=1, random=1).items():
        if not queries:
            continue
        row = int(rows[queries[0]])
        split = samples[row].split
        number = sum(sample.split == split for sample in samples[:row])
        seen = open_sample(run.loaded, run.data, f"{split}:{number}")
        kept = "; ".join(
            f"{view.modality}: {int(view.stages[-1].kept.sum())} of {len(view.stages[-1].kept)} patches kept"
            for view in seen.views()
            if view.stages
        )
        caption = f"{_HEADINGS[why]}: {seen.title}"
        parts.append(photo(partial(_draw_patches, seen), f"Kept patches of {seen.title}. {kept}", caption))
    return join(*parts)


def _draw_patches(seen: SeenSample, look: Look) -> Image.Image:
    figure = draw_kept_patches(seen.views(), look, with_sources=True)
    return Image.open(io.BytesIO(png_bytes(figure, _PATCH_DPI)))
