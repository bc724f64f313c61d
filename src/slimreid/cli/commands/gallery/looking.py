"""`slimreid gallery list`, `show`, `log` and `check`."""

from __future__ import annotations

from slimreid.cli.commands.gallery.opening import first_file, open_gallery, row_filter, show_concerns
from slimreid.cli.console import console, print_json, say, table
from slimreid.cli.options.gallery import GalleryCheckOptions, GalleryListOptions, LogOptions, RowsOptions
from slimreid.gallery.answers import row_to_dict
from slimreid.gallery.store.rows import LogEntry, Row
from slimreid.times import show_time

SHOWN = 200
"""Rows of a table that are shown."""


def list_(options: GalleryListOptions) -> None:
    """List the identities of a gallery."""
    with open_gallery(options) as gallery:
        sizes, info = gallery.list(), gallery.info
    if options.json:
        print_json(sizes)
        return
    named = [(name, count) for name, count in sizes.items() if name]
    console.print(table(["identity", "rows"], named[:SHOWN]))
    if len(named) > SHOWN:
        say(f"... and {len(named) - SHOWN:,} more; --json lists all")
    unknown = f", {sizes['']:,} of them without identity" if sizes.get("") else ""
    say(f"{len(named):,} identities, {sum(sizes.values()):,} rows{unknown}")
    say(f"features: {info.feature}, {info.dimension:,} numbers, model {info.fingerprint[:12]}")


def show(options: RowsOptions) -> None:
    """Show the rows of a gallery."""
    with open_gallery(options) as gallery:
        rows = gallery.show(row_filter(gallery, options))
    if options.json:
        print_json([row_to_dict(row) for row in rows])
        return
    columns = ["row", "identity", "modalities", "camera", "time", "group", "quality", "image"]
    console.print(table(columns, [_line(row) for row in rows[:SHOWN]]))
    if len(rows) > SHOWN:
        say(f"... and {len(rows) - SHOWN:,} more; --json lists all")


def _line(row: Row) -> list[str]:
    seen = ["+".join(row.modalities), row.camera, show_time(row.time), row.group]
    quality = "" if row.quality is None else f"{row.quality:.2f}"
    return [str(row.id), row.identity, *seen, quality, first_file(row)]


def log(options: LogOptions) -> None:
    """Show who changed and searched what, the last first."""
    with open_gallery(options) as gallery:
        entries = gallery.log(options.limit or None)
    if options.json:
        print_json([{**vars(entry), "details": dict(entry.details)} for entry in entries])
        return
    console.print(table(["entry", "time", "by", "what", "rows", ""], [_entry(entry) for entry in entries]))


def _entry(entry: LogEntry) -> list[object]:
    details = ", ".join(f"{key}: {_short(value)}" for key, value in entry.details.items())
    undone = f"undone by entry {entry.undone_by}" if entry.undone_by else ""
    about = "; ".join(text for text in (details, undone) if text)
    return [str(entry.id), show_time(entry.time), entry.by, entry.operation, entry.count, about]


def _short(value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:3]))
        return f"{shown} and {len(value) - 3} more" if len(value) > 3 else shown
    return str(value)


def check(options: GalleryCheckOptions) -> int:
    """Check the store, and list rows that should be looked at; exit code 1 if there are any."""
    with open_gallery(options) as gallery:
        concerns = list(gallery.check(row_filter(gallery, options)))
    if options.json:
        print_json([{**row_to_dict(c.row), "concerns": list(c.reasons)} for c in concerns])
    else:
        show_concerns(concerns)
        say(f"the gallery is intact; {len(concerns):,} rows should be checked")
    return 1 if concerns else 0
