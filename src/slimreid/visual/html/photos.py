"""The sections of a report that show photographs: answers of some queries, and which patches were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from slimreid.visual.html.parts import Photo, Section, photo, section
from slimreid.visual.html.run import ReportRun
from slimreid.visual.patches.figure import OUTLINE, Panel, view_panels
from slimreid.visual.patches.sample_views import open_sample
from slimreid.visual.ranks.rank_lists import Pictures, RankList, choose_queries, open_samples, result_lists
from slimreid.visual.ranks.rank_sheet import score_digits

QUERIES = {"best": 2, "worst": 3, "random": 2}
"""Rank lists per run."""
LENGTH = 10
_HEADINGS = {"best": "Best queries", "worst": "Worst queries", "random": "Random queries"}
_HEIGHT = 160
"""Pixels of an image: about twice what a page shows, for sharp screens."""


@dataclass(frozen=True)
class Answer:
    """A query or one of its answers, as the page shows it."""

    kind: str
    """`query`, `match` or `other`."""
    rank: str
    photos: dict[str, Photo | None]
    """One per modality; None = absent."""
    score: str
    camera: str


@dataclass(frozen=True)
class ShownList:
    """A rank list of the page."""

    title: str
    told: str
    """The same in words, for those who do not see the pictures."""
    aspect: float
    """Width of an image per height, for boxes in place of absent ones."""
    answers: list[Answer]


@dataclass(frozen=True)
class ShownPanel:
    """A small picture with its title and caption; without a photo it is absent, without a title empty."""

    title: str = ""
    caption: str = ""
    photo: Photo | None = None


@dataclass(frozen=True)
class ShownSample:
    """The kept patches of a sample: (modality, panels) row by row."""

    caption: str
    alt: str
    aspect: float
    rows: list[tuple[str, list[ShownPanel]]]


def rank_section(runs: Sequence[ReportRun]) -> Section:
    """Rank lists of the best, the worst and of random queries."""
    lists = {run.name: _rank_lists(run) for run in runs}
    modalities = runs[0].evaluation.modalities
    return section("ranks", "Rank lists", "Rank lists", modalities=modalities, runs=lists)


def _rank_lists(run: ReportRun) -> dict[str, list[ShownList]]:
    evaluation, result = run.evaluation, run.scores.result
    windows = run.loaded.config.data.windows
    open_query, open_item = (
        open_samples(run.manifest, run.samples(side), windows)
        for side in (evaluation.query, evaluation.gallery)
    )
    from_, to = (side.cameras.tolist() for side in (evaluation.query, evaluation.gallery))
    length = min(LENGTH, result.top_index.shape[1])
    open_item = cache(open_item)  # the same items answer many queries
    shown = {}
    for why, queries in choose_queries(result, **QUERIES).items():
        lists = result_lists(result, {why: queries}, open_query, open_item, from_, to, length)
        if lists:
            shown[_HEADINGS[why]] = [_shown_list(found, evaluation.modalities) for found in lists]
    return shown


def _shown_list(found: RankList, modalities: Sequence[str]) -> ShownList:
    matches = [str(rank) for rank, item in enumerate(found.items, start=1) if item.is_match]
    what = f"correct matches at ranks {', '.join(matches)}" if matches else "no correct match"
    title = found.title.split(" · ", 1)[1]
    digits = score_digits([item.score for item in found.items])
    query = Answer("query", "query", _photos(found.query, modalities), "", f"cam {found.query_camera}")
    answers = [query]
    for rank, item in enumerate(found.items, start=1):
        kind, photos = "match" if item.is_match else "other", _photos(item.pictures, modalities)
        answers.append(Answer(kind, str(rank), photos, f"{item.score:.{digits}f}", f"cam {item.camera}"))
    told = f"Rank list, {title}: {what} among the first {len(found.items)}"
    return ShownList(title, told, _aspect(found.query), answers)


def _photos(pictures: Pictures, modalities: Sequence[str]) -> dict[str, Photo | None]:
    found = {name: pictures.get(name) for name in modalities}
    return {name: photo(picture, _HEIGHT) if picture else None for name, picture in found.items()}


def _aspect(pictures: Pictures) -> float:
    return next((p.width / p.height for p in pictures.values() if p is not None), 0.5)


def patches_section(runs: Sequence[ReportRun]) -> Section | None:
    """Kept patches of a few samples; None where no run reduces tokens."""
    reducing = [run for run in runs if run.loaded.config.model.reduction != "none"]
    if not reducing:
        return None
    return section(
        "patches",
        "Kept patches",
        "Patches",
        staged=any(run.loaded.model.in_backbone is not None for run in reducing),
        alone=reducing[0].name if len(reducing) == 1 < len(runs) else "",
        runs={run.name: _patches(run) for run in reducing},
    )


def _patches(run: ReportRun) -> list[ShownSample]:
    """The first sample of the best, of the worst and of a random query."""
    samples, rows = run.manifest.samples, run.evaluation.query.rows
    shown = []
    for why, queries in choose_queries(run.scores.result, best=1, worst=1, random=1).items():
        if not queries:
            continue
        row = int(rows[queries[0]])
        split = samples[row].split
        number = sum(sample.split == split for sample in samples[:row])
        seen = open_sample(run.loaded, run.data, f"{split}:{number}")
        views = seen.views()
        kept = "; ".join(
            f"{view.modality}: {int(view.stages[-1].kept.sum())} of {len(view.stages[-1].kept)} patches kept"
            for view in views
            if view.stages
        )
        panels = []
        for view in views:
            first, *others = ([_shown_panel(p) for p in row] for row in view_panels(view))
            panels.append((view.modality, first))
            # A stage after the first has no image of its own: its maps start below those of the first.
            panels += [("", [ShownPanel(), *row]) for row in others]
        caption = f"{_HEADINGS[why].removesuffix('queries')}query: {seen.title}"
        alt = f"Kept patches of {seen.title}. {kept}"
        shown.append(ShownSample(caption, alt, _aspect(seen.images), panels))
    return shown


def _shown_panel(panel: Panel) -> ShownPanel:
    if panel.pixels is None:
        return ShownPanel(panel.title)
    image = Image.fromarray(np.ascontiguousarray(panel.pixels))
    draw = ImageDraw.Draw(image)
    for line in panel.lines:
        draw.line(list(line), fill=OUTLINE, width=4)
    return ShownPanel(panel.title, panel.caption, photo(image, _HEIGHT))
