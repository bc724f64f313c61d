"""`slimreid gallery export`, `import` and `copy`."""

from __future__ import annotations

from slimreid.cli.commands.gallery.opening import open_gallery, row_filter
from slimreid.cli.console import say
from slimreid.cli.options.gallery import CopyOptions, GalleryExportOptions, GalleryImportOptions
from slimreid.files import check_writable
from slimreid.gallery.gallery import Gallery


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
