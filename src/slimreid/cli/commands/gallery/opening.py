"""What the commands of a gallery share: opening it, filters, lists of rows to look at."""

from __future__ import annotations

from collections import Counter

from slimreid.cli.console import console, say, table
from slimreid.cli.options.gallery import EmbeddingOptions, GalleryOptions, RowOptions
from slimreid.config.model import DEFAULT_MODEL
from slimreid.gallery.concerns import Concern
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.rows import Filter, Row
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.modalities import parse_subset
from slimreid.times import parse_time

SHOWN = 10
"""Lines of a list that are shown."""


def open_gallery(options: GalleryOptions) -> Gallery:
    """The gallery, without its model."""
    return Gallery(options.gallery, by=options.by)


def open_with_model(options: EmbeddingOptions) -> tuple[Gallery, LoadedModel]:
    """The gallery with its model on the device that was asked for."""
    gallery = Gallery(options.gallery, by=options.by)
    loaded = load(options.model or gallery.info.path or DEFAULT_MODEL, options.device)
    gallery.use(loaded)
    return gallery, loaded


def row_filter(gallery: Gallery, options: RowOptions) -> Filter:
    """The rows that the options mean."""
    names = parse_subset(options.modalities, gallery.info.modalities) if options.modalities else None
    return Filter(
        ids=options.id or None,
        identities=options.identity or None,
        groups=options.group or None,
        cameras=options.camera or None,
        since=parse_time(options.since or ""),
        until=parse_time(options.until or ""),
        modalities=names,
    )


def first_file(row: Row) -> str:
    """The path of the first image of a row; empty where it has none."""
    return next(iter(row.files.values())).path if row.files else ""


def show_concerns(concerns: list[Concern]) -> None:
    """Samples that should be looked at: how many by reason, and the first of them."""
    if not concerns:
        return
    counts = Counter(_kind(reason) for concern in concerns for reason in concern.reasons)
    console.print(table(["look at", "rows"], counts.most_common()))
    lines = [(concern.row, "; ".join(concern.reasons)) for concern in concerns]
    show_some("look at", [f"row {row.id} ({row.identity or 'no identity'}): {why}" for row, why in lines])


def _kind(reason: str) -> str:
    """A reason without the modality or row it names."""
    parts = reason.split(": ")
    return (parts[0] if len(parts[0].split()) > 1 else parts[-1]).partition(" of row")[0]


def show_some(word: str, lines: list[str]) -> None:
    """The first lines of a list, each after `word`, and how many more there are."""
    for line in lines[:SHOWN]:
        say(f"{word}: {line}")
    if len(lines) > SHOWN:
        say(f"... and {len(lines) - SHOWN:,} more")
