"""`slimreid report`: one self-contained HTML page about one or several runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from slimreid import __version__
from slimreid.errors import ConfigError
from slimreid.files import write_text
from slimreid.progress import progress
from slimreid.runs.measure import measure_speeds
from slimreid.visual.html.figures import (
    map_section,
    missing_section,
    retrieval_section,
    training_section,
    verification_section,
)
from slimreid.visual.html.models import Speeds, model_lines, result_section
from slimreid.visual.html.parts import Section, render
from slimreid.visual.html.photos import patches_section, rank_section
from slimreid.visual.html.provenance import PROTOCOLS, provenance_section
from slimreid.visual.html.reproduce import reproduce_section
from slimreid.visual.html.run import ReportRun

SECTIONS: tuple[Callable[[Sequence[ReportRun]], Section | None], ...] = (
    retrieval_section,
    rank_section,
    patches_section,
    missing_section,
    verification_section,
    map_section,
    training_section,
    provenance_section,
)
"""In the order of the page, after the result; a section without anything to show is left out."""


def write_report(runs: Sequence[ReportRun], path: Path, speeds: Speeds | None = None) -> None:
    """Write the report of some runs.

    Args:
        runs: The first is what the others are compared with.
        path: The page; its name ends in .html.
        speeds: Images per second by name of the run; measured here unless given.

    Raises:
        ConfigError: No runs, or another file name.
    """
    if not runs:
        raise ConfigError("a report needs at least one run")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: a report is a web page; end its name in .html")
    if speeds is None:
        # Samples per forward pass: many for small models, few for large ones.
        batch = max(1, min(32, round(16 / max(run.summary.gflops for run in runs))))
        speeds = measure_speeds({run.name: run.loaded for run in runs}, batch, repeats=5)
    made = [make(runs) for make in progress(SECTIONS, "writing the report")]
    sections = [result_section(runs, speeds), *(section for section in made if section is not None)]
    sections.append(reproduce_section(runs, path.as_posix()))
    lead = render("sections/lead.html", where=_where(runs), lines=model_lines(runs, speeds))
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    footer = f"Made by SlimReID {__version__} on {now}. This page is one file and needs no network."
    write_text(path, render("report.html", title=_title(runs), lead=lead, sections=sections, footer=footer))


def _title(runs: Sequence[ReportRun]) -> str:
    names = [run.name for run in runs]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    where = dict.fromkeys(run.evaluation.dataset for run in runs)
    return f"{listed} on {', '.join(where)}"


def _where(runs: Sequence[ReportRun]) -> str:
    """What was measured, in a line; of the first run where they differ."""
    evaluation = runs[0].evaluation
    size = f"{len(evaluation.query):,} queries in a gallery of {len(evaluation.gallery):,}"
    seen = "+".join(evaluation.modalities)
    text = f"{evaluation.dataset}: {size}, {seen}; protocol {PROTOCOLS[evaluation.protocol]}"
    return f"{text}. Images: {evaluation.origin}." if evaluation.origin else f"{text}."
