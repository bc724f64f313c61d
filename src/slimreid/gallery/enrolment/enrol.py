"""Enrol samples: read, judge, embed and store them, some at a time, so that nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slimreid.data.images.decode import read_images
from slimreid.data.images.hashing import content_hash
from slimreid.errors import DataError
from slimreid.gallery.concerns import Concern, find_concerns
from slimreid.gallery.decisions.quality import Quality, sample_quality
from slimreid.gallery.embedder import Embedder, embed_samples
from slimreid.gallery.enrolment.images import make_thumbnail
from slimreid.gallery.enrolment.sources import Source, SourceSample
from slimreid.gallery.store.contract import Store
from slimreid.gallery.store.rows import Change, Filter, NewRow, in_parts
from slimreid.progress import progress

CHUNK = 64
"""Samples that are read, embedded and committed at once."""


@dataclass
class Enrolled:
    """What became of the samples of a source."""

    entry: int | None = None
    """In the log; None where nothing was enrolled."""
    added: int = 0
    known: list[str] = field(default_factory=list)
    """Samples that were in the gallery already, by content, and where."""
    broken: list[str] = field(default_factory=list)
    """Samples that could not be read, and why."""
    concerns: list[Concern] = field(default_factory=list)


@dataclass(frozen=True)
class _Read:
    """A sample with what was found out about it."""

    sample: SourceSample
    hash: str
    thumbnail: bytes
    quality: Quality


def enrol_source(
    store: Store,
    model: Embedder,
    source: Source,
    by: str,
    *,
    origin: str = "",
    skip_broken: bool = False,
    show_progress: bool | None = None,
) -> Enrolled:
    """Enrol the samples of a source that are not in the gallery yet.

    Each `CHUNK` of samples is one commit, so after a crash only the rest is enrolled. All of them are one
    entry of the log and are undone together.

    Args:
        store: Gallery to enrol into.
        model: Model of the gallery.
        source: Samples with their labels.
        by: Who enrols, for the log.
        origin: Where the samples come from, for the log; '' = the kind of source.
        skip_broken: Leave out samples whose files cannot be read.
        show_progress: Force the progress bar on or off; None = in a terminal.

    Raises:
        DataError: For a broken file that is not skipped.
        GalleryError: Where the gallery cannot be written.
    """
    done = Enrolled()
    hashes: list[str] = []
    details = {"from": origin or source.kind}
    for piece in progress(in_parts(source.samples, CHUNK), "enrolling", show=show_progress):
        read = list(_read(store, piece, done, skip_broken))
        if not read:
            continue
        rows = _embed(store, model, read)
        done.entry = store.commit(Change("enrol", by, details, rows=rows, continues=done.entry))
        done.added += len(rows)
        hashes += [row.hash for row in rows]
    done.concerns = find_concerns(store, Filter(hashes=hashes), show_progress)
    return done


def _read(
    store: Store, samples: Sequence[SourceSample], done: Enrolled, skip_broken: bool
) -> Iterator[_Read]:
    """Read those samples that are not in the gallery."""
    hashes: dict[str, SourceSample] = {}
    for sample in samples:
        try:
            digest = content_hash(sample.images)
        except DataError as error:
            _broken(error, done, skip_broken)
            continue
        if digest in hashes:
            done.known.append(f"{sample.name}: the same as {hashes[digest].name}")
        hashes.setdefault(digest, sample)
    there = {row.hash: row for row in store.rows(Filter(hashes=list(hashes)))}
    for digest, sample in hashes.items():
        if digest in there:
            row = there[digest]
            done.known.append(f"{sample.name}: is row {row.id} already ({row.identity or 'no identity'})")
            continue
        try:
            pixels = read_images(sample.images, Path())
        except DataError as error:
            _broken(error, done, skip_broken)
            continue
        yield _Read(sample, digest, make_thumbnail(pixels), sample_quality(pixels))


def _broken(error: DataError, done: Enrolled, skip: bool) -> None:
    if not skip:
        raise DataError(f"{error}; what was enrolled before it stays (--skip-broken goes on)") from None
    done.broken.append(str(error))


def _embed(store: Store, model: Embedder, read: Sequence[_Read]) -> list[NewRow]:
    info = store.model
    samples = [dict(found.sample.images) for found in read]
    features = embed_samples(model, info.feature, samples, [found.sample.camera for found in read])
    return [
        NewRow(
            feature=feature,
            modalities=tuple(m for m in info.modalities if m in found.sample.images),
            identity=found.sample.identity,
            group=found.sample.group,
            camera=found.sample.camera,
            time=found.sample.time,
            files=found.sample.images,
            hash=found.hash,
            quality=found.quality.value,
            reasons=found.quality.reasons,
            thumbnail=found.thumbnail,
        )
        for found, feature in zip(read, features, strict=True)
    ]
