"""Parquet into a gallery: exported galleries and folders of embeddings, in pieces, counted in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from slimreid.gallery.errors import GalleryError
from slimreid.gallery.exchange.embeddings import EmbeddedRows
from slimreid.gallery.exchange.parquet import ExportedRows
from slimreid.gallery.exchange.transfer import Transferred, check_same_model, take_in
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Filter
from slimreid.progress import progress

_COUNTED = 1024
"""Rows that are counted at once."""


Importable: TypeAlias = "EmbeddedRows | ExportedRows"
"""Rows in Parquet, of one model."""


def open_importable(path: Path) -> Importable:
    """What `slimreid gallery export` or `slimreid embed` wrote; raises `DataError` for anything else."""
    return EmbeddedRows.open(path) or ExportedRows.open(path)


def import_rows(
    store: Store, sources: Sequence[Importable], by: str, show_progress: bool | None = None
) -> Transferred:
    """Take in the rows that are not in a gallery yet, then look whether each of them is there once.

    Rows without a feature are counted only. A process that was killed is simply started again. Raises
    `OtherModelError` for features of another model, before anything is written.
    """
    settings: dict[str, str] = {}
    for source in sources:
        check_same_model(store, source.model, str(source.place))
        settings |= source.settings
    chunks = (rows for source in sources for rows in source.chunks(store.at_once))
    done = take_in(store, progress(chunks, "importing", show=show_progress), "import", by, settings)
    for source in sources:
        done.left_out.update(source.left_out)
        _verify(store, source)
    return done


def _verify(store: Store, source: Importable) -> None:
    """Raise `GalleryError` unless every row is in the gallery, and none twice."""
    wanted = found = 0
    for hashes in source.hashes(_COUNTED):
        different = list(dict.fromkeys(hashes))
        wanted += len(different)
        found += store.count(Filter(hashes=different))
    if found != wanted:
        raise GalleryError(
            f"{store.place}: {found:,} rows are there of the {wanted:,} in {source.place}; was it changed "
            "meanwhile? Import it again"
        )
