"""`slimreid gallery create`, `enrol`, `reembed`, `export`, `import` and `copy`."""

from __future__ import annotations

import shlex
from pathlib import Path

from slimreid.cli.commands.gallery.opening import (
    open_gallery,
    open_with_model,
    row_filter,
    show_concerns,
    show_some,
)
from slimreid.cli.commands.gallery.remote import connect, enrol_server, is_server
from slimreid.cli.console import say
from slimreid.cli.options.gallery import (
    CopyOptions,
    CreateOptions,
    EnrolOptions,
    GalleryExportOptions,
    GalleryImportOptions,
    ReembedOptions,
)
from slimreid.errors import DataError
from slimreid.files import check_writable
from slimreid.gallery.enrolment.sources import Labels, Source, open_source
from slimreid.gallery.gallery import Gallery
from slimreid.inference.load import load
from slimreid.inference.search import KnowsModalities, canonical_of
from slimreid.times import parse_time


def create(options: CreateOptions) -> None:
    """Make an empty gallery."""
    with Gallery.create(options.gallery, load(options.model), feature=options.feature, by=options.by) as made:
        info = made.info
    say(f"{options.gallery}: an empty gallery of {info.feature} features, {info.dimension:,} numbers each")
    say(f"next: slimreid gallery enrol {shlex.quote(options.gallery)} FOLDER")


def enrol(options: EnrolOptions) -> None:
    """Enrol samples that are not in the gallery yet."""
    if is_server(options.gallery):
        _enrol_server(options)
        return
    gallery, loaded = open_with_model(options)
    with gallery:
        source = _source(loaded, options)
        done = gallery.enrol(source, skip_broken=options.skip_broken)
        sizes = gallery.list()
    for note in source.notes:
        say(f"note: {note}")
    show_some("known", done.known)
    show_some("broken", done.broken)
    show_concerns(done.concerns)
    say(_summary(done.added, len(done.known), sum(sizes.values()), len(set(sizes) - {""})))


def _enrol_server(options: EnrolOptions) -> None:
    client, model = connect(options)
    with client:
        source = _source(model, options)
        done = enrol_server(client, source)
        now = client.status()
    for note in source.notes:
        say(f"note: {note}")
    show_some("broken", list(done.problems))
    show_some("look at", list(done.concerns))
    say(_summary(done.enrolled, done.known, now["rows"], now["identities"]))
    if done.broken and not options.skip_broken:
        raise DataError(f"{done.broken:,} samples could not be read; the others are enrolled")


def _summary(added: int, known: int, rows: int, identities: int) -> str:
    return (
        f"{added:,} samples enrolled, {known:,} were there already; "
        f"now {rows:,} rows of {identities:,} identities"
    )


def _source(model: KnowsModalities, options: EnrolOptions) -> Source:
    """The samples that the options mean."""
    modality = None if options.modality is None else canonical_of(model, options.modality)
    time = parse_time(options.time or "")
    labels = Labels(options.identity, options.group, options.camera, time, modality, options.split)
    place = Path(options.sources[0]) if len(options.sources) == 1 else list(options.sources)
    if isinstance(place, Path) and not place.exists():
        place = list(options.sources)  # tir=FILE
    return open_source(model, place, labels)


def reembed(options: ReembedOptions) -> None:
    """Recompute all features with another model."""
    loaded = load(options.model, options.device)
    with open_gallery(options) as gallery:
        done = gallery.reembed(loaded, feature=options.feature, drop_missing=options.drop_missing)
        rows = len(gallery)
    show_some("removed", done.missing)
    if done.entry is None:
        say(f"{options.gallery}: its features are of this model already")
        return
    say(f"{rows:,} rows have features of {options.model} now ({done.rows:,} computed in this run)")
    say(f"next: slimreid gallery calibrate {shlex.quote(options.gallery)}")


def export(options: GalleryExportOptions) -> None:
    """Export a gallery to a Parquet file."""
    check_writable(options.out)
    with open_gallery(options) as gallery:
        count = gallery.export(options.out, row_filter(gallery, options), overwrite=options.overwrite)
    say(f"{count:,} rows written to {options.out}")


def import_(options: GalleryImportOptions) -> None:
    """Import the rows of Parquet files that the gallery does not have yet."""
    with Gallery.for_import(options.gallery, options.files, by=options.by, bucket=options.bucket) as gallery:
        done = gallery.import_(options.files)
    left = "".join(f", {n:,} left out ({kind})" for kind, n in sorted(done.left_out.items()))
    say(f"{done.added:,} rows imported, {done.known:,} were there already{left}; each was found once")


def copy(options: CopyOptions) -> None:
    """Copy a gallery, and compare both row by row."""
    with open_gallery(options) as gallery:
        done = gallery.copy(options.target)
        rows = len(gallery)
    say(f"{done.added:,} rows copied, {done.known:,} were there already; all {rows:,} are the same in both")
