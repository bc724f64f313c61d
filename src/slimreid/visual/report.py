"""`slimreid report`: one self-contained HTML page about one or several runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from slimreid import __version__
from slimreid.console import progress
from slimreid.errors import ConfigError
from slimreid.evaluation.points import points
from slimreid.files import write_text
from slimreid.visual.report_again import reproduce_section
from slimreid.visual.report_html import Html, Section, page, paragraph
from slimreid.visual.report_photos import patches_section, rank_section
from slimreid.visual.report_run import ReportRun
from slimreid.visual.report_sections import (
    map_section,
    missing_section,
    origin_section,
    result_section,
    retrieval_section,
    training_section,
    verification_section,
)
from slimreid.visual.report_tables import verdict_sentence

SECTIONS: tuple[Callable[[Sequence[ReportRun]], Section | None], ...] = (
    result_section,
    origin_section,
    training_section,
    retrieval_section,
    rank_section,
    patches_section,
    missing_section,
    verification_section,
    map_section,
)
"""In the order of the page; a section without anything to show is left out."""


def write_report(runs: Sequence[ReportRun], path: Path, show_progress: bool | None = None) -> None:
    """Write the report of some runs.

    Raises `ConfigError` without runs, or for a file that is not called .html.
    """
    if not runs:
        raise ConfigError("a report needs at least one run")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: a report is a page; call it .html")
    made = [make(runs) for make in progress(SECTIONS, "writing the report", show=show_progress)]
    sections = [section for section in made if section is not None]
    sections.append(reproduce_section(runs, path.as_posix()))
    write_text(path, page(_title(runs), sections, lead(runs), _footer()))


def _title(runs: Sequence[ReportRun]) -> str:
    names = [run.name for run in runs]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    where = dict.fromkeys(run.evaluation.dataset for run in runs)
    return f"{listed} on {', '.join(where)}"


def lead(runs: Sequence[ReportRun]) -> Html:
    """The result in two sentences."""
    first = runs[0]
    result = first.scores.result
    text = (
        f"Of {result.valid_queries:,} queries, {first.name} finds a right answer first for "
        f"{points(result.rank(1))} %; its mAP is {points(result.map)}, a random order would have "
        f"{points(result.chance_map)}."
    )
    others = " ".join(verdict_sentence(first, run) for run in runs[1:])
    return paragraph(f"{text} {others}".strip(), class_="lead")


def _footer() -> str:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by SlimReID {__version__} on {now}. This page is one file and needs no network."
