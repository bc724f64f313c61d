"""All features of a gallery anew with another model: prepared beside the old ones, switched to at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slimreid.data.images.hashing import content_hash
from slimreid.errors import DataError
from slimreid.gallery.embedder import Embedder, describe_model, embed_samples
from slimreid.gallery.errors import GalleryError
from slimreid.gallery.store.contract import GENERATION, Store
from slimreid.gallery.store.rows import Change, ModelInfo, Row, RowState, in_parts
from slimreid.progress import progress

CHUNK = 64
"""Rows that are read, embedded and kept at once."""
_ROUNDS = 5
"""How often rows that came meanwhile are caught up with."""


@dataclass
class Reembedded:
    """What became of the rows."""

    entry: int | None = None
    """In the log; None where the features were those of the model already."""
    rows: int = 0
    """Rows embedded now; others were done by a process that was stopped."""
    missing: list[str] = field(default_factory=list)
    """Rows whose files are gone or have changed: removed from the gallery, and why."""


def reembed(
    store: Store,
    model: Embedder,
    by: str,
    *,
    feature: str | None = None,
    drop_missing: bool = False,
    show_progress: bool | None = None,
) -> Reembedded:
    """Compute the features of all rows from their files with another model, then use these.

    Until the end the old features are in use. Finished rows are kept, so after a crash the same call
    continues. Undoing it brings the old features back.

    Args:
        store: Gallery to recompute.
        model: Model to compute the features with.
        by: Who does it, for the log.
        feature: Kind of feature to hold; None = the one it holds now.
        drop_missing: Remove rows whose image files are gone or have changed.
        show_progress: Force the progress bar on or off; None = in a terminal.

    Raises:
        GalleryError: Naming a row whose file is gone or has changed, unless such rows are dropped.
    """
    info = describe_model(model, feature or store.model.feature)
    done = Reembedded()
    if (info.fingerprint, info.feature) == (store.model.fingerprint, store.model.feature):
        return done
    generation = _generation(store, info)
    for _ in range(_ROUNDS):
        left = _catch_up(store, model, info, generation, done, drop_missing, show_progress)
        states = {row.id: RowState(row.identity, row.group, removed=True) for row in left}
        details = {"from": store.model.fingerprint, "to": info.fingerprint}
        switch = {GENERATION: str(generation)}
        try:
            done.entry = store.commit(
                Change("reembed", by, details, states=states, settings=switch, count=store.count())
            )
        except GalleryError:
            if {row.id for row in _without_feature(store, generation)} - set(states):
                continue  # rows came meanwhile
            raise
        return done
    raise GalleryError(f"{store.place}: rows kept coming in; stop enrolling and try again")


def _generation(store: Store, info: ModelInfo) -> int:
    """The generation to write: one that was begun with this model, or a new one."""
    number = int(store.settings()[GENERATION]) + 1
    found, _ = store.staged(number)
    if found is not None and (found.fingerprint, found.feature) != (info.fingerprint, info.feature):
        store.unstage(number)
    return number


def _without_feature(store: Store, generation: int) -> list[Row]:
    """The rows that have no feature of a generation."""
    there = set(store.staged(generation)[1].tolist())
    return [row for row in store.rows() if row.id not in there]


def _catch_up(
    store: Store,
    model: Embedder,
    info: ModelInfo,
    generation: int,
    done: Reembedded,
    drop_missing: bool,
    show_progress: bool | None,
) -> list[Row]:
    """Embed the rows that have no feature of the generation; those that cannot be."""
    rows, left = _without_feature(store, generation), list[Row]()
    for piece in progress(in_parts(rows, CHUNK), "embedding anew", show=show_progress):
        good = [row for row in piece if _is_whole(row, info, done, drop_missing)]
        left += [row for row in piece if row not in good]
        if not good:
            continue
        samples = [{m: row.files[m] for m in info.modalities if m in row.files} for row in good]
        features = embed_samples(model, info.feature, samples, [row.camera for row in good])
        store.stage(generation, info, {row.id: f for row, f in zip(good, features, strict=True)})
        done.rows += len(good)
    return left


def _is_whole(row: Row, info: ModelInfo, done: Reembedded, drop_missing: bool) -> bool:
    """Whether the files of a row are those that were enrolled."""
    try:
        if not set(info.modalities) & set(row.files):
            raise DataError(
                f"row {row.id}: it was seen in {_joined(row.modalities)} only, not in the model's"
            )
        if content_hash(row.files) != row.hash:
            raise DataError(f"row {row.id}: {_joined([f.path for f in row.files.values()])} has changed")
    except DataError as error:
        if not drop_missing:
            raise GalleryError(
                f"{error}; bring the file back, or remove such rows with --drop-missing"
            ) from None
        done.missing.append(str(error))
        return False
    return True


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
