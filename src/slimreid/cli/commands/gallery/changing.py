"""`slimreid gallery remove`, `rename`, `merge`, `split`, `assign`, `undo` and `cluster`."""

from __future__ import annotations

import shlex

from slimreid.cli.commands.gallery.opening import open_gallery, row_filter
from slimreid.cli.console import console, say, table
from slimreid.cli.options.gallery import (
    AssignOptions,
    ClusterOptions,
    MergeOptions,
    RemoveOptions,
    RenameOptions,
    SplitOptions,
    UndoOptions,
)
from slimreid.extras import explain_missing
from slimreid.files import check_writable, write_new
from slimreid.gallery.clusters import read_table, table_text
from slimreid.gallery.gallery import UNKNOWN, Gallery


def remove(options: RemoveOptions) -> None:
    """Take rows out of a gallery, or erase them for good."""
    with open_gallery(options) as gallery:
        entry = gallery.remove(row_filter(gallery, options), forget=options.forget)
        _say_done(gallery, entry, "erased for good" if options.forget else "removed")


def rename(options: RenameOptions) -> None:
    """Give an identity another name."""
    with open_gallery(options) as gallery:
        _say_done(gallery, gallery.rename(options.old, options.new), f"renamed to {options.new}")


def merge(options: MergeOptions) -> None:
    """Make several identities one."""
    with open_gallery(options) as gallery:
        _say_done(gallery, gallery.merge(options.identities, options.into), f"are {options.into} now")


def split(options: SplitOptions) -> None:
    """Make rows of an identity an identity of their own."""
    with open_gallery(options) as gallery:
        _say_done(gallery, gallery.split(options.rows, options.into), f"are {options.into} now")


def assign(options: AssignOptions) -> None:
    """Give rows the identities of a table."""
    with open_gallery(options) as gallery:
        _say_done(gallery, gallery.assign(read_table(options.table)), "have a new identity")


def _say_done(gallery: Gallery, entry: int, what: str) -> None:
    found = next(line for line in gallery.log() if line.id == entry)
    say(f"{found.count:,} rows {what} (entry {entry} of the log)")


def undo(options: UndoOptions) -> None:
    """Undo the last changes."""
    with open_gallery(options) as gallery:
        for entry in gallery.undo(options.steps):
            say(f"undone: entry {entry.id}, {entry.operation} of {entry.count:,} rows by {entry.by}")


def cluster(options: ClusterOptions) -> None:
    """Propose identities for rows that have none."""
    for path in (options.out, options.picture):
        if path is not None:
            check_writable(path)
    if options.picture is not None:
        with explain_missing():
            from slimreid.cli.commands.gallery.picture import draw_proposal
    with open_gallery(options) as gallery:
        which = row_filter(gallery, options)
        which = UNKNOWN if which.is_all else which
        proposal = gallery.cluster(which, rate=options.rate, threshold=options.threshold)
        write_new(options.out, table_text(proposal).encode(), options.overwrite)
        if options.picture is not None:
            draw_proposal(gallery, proposal, options.picture)
            say(f"picture: {options.picture}")
    named = {name: rows for name, rows in proposal.rows.items() if name}
    console.print(table(["proposed", "rows"], [[name, len(rows)] for name, rows in list(named.items())[:20]]))
    alone = len(proposal.rows.get("", ()))
    say(f"{len(named):,} identities proposed, {alone:,} rows resemble no other; table: {options.out}")
    words = [options.gallery, str(options.out)]
    say(f"next: edit the table, then slimreid gallery assign {' '.join(map(shlex.quote, words))}")
