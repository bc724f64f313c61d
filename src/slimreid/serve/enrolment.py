"""From samples that were sent to rows of the gallery: each once, on disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slimreid.gallery.concerns import find_concerns, neighbour_reasons
from slimreid.gallery.store.rows import Change, Filter, NewRow
from slimreid.serve.http.uploads import Upload
from slimreid.serve.kept_images import keep_images
from slimreid.serve.schemas.enrolling import Enrolled, Labels, SampleResult
from slimreid.serve.service import Seen, Service
from slimreid.serve.views import show_sample
from slimreid.times import parse_time


@dataclass(frozen=True)
class Labelled:
    """A sample and what is said of it."""

    upload: Upload
    labels: Labels


@dataclass
class Outcome:
    """What became of samples."""

    entry: int | None = None
    rows: dict[str, int] = field(default_factory=dict)
    """Hash -> row of samples that were enrolled now."""
    known: dict[str, int] = field(default_factory=dict)
    """Hash -> row of samples that were there before."""
    concerns: dict[str, list[str]] = field(default_factory=dict)
    """Hash -> why one should look at the row."""


async def enrol_samples(
    service: Service, samples: Sequence[Labelled], by: str, dry_run: bool = False
) -> Enrolled:
    """Enrol samples that are not there yet, or say what would become of them."""
    hashes = {sample.upload.hash: sample for sample in reversed(samples)}
    there = await service.in_thread(find_known, service, list(hashes))
    new = [sample for digest, sample in hashes.items() if digest not in there]
    seen = await see_labelled(service, new) if new else []
    # What is there already is decoded too: it may be known by content and still be shown with its quality.
    known = [sample.upload for digest, sample in hashes.items() if digest in there]
    judged = dict(zip([u.hash for u in known], await service.decode(known), strict=True))
    judged |= {found.upload.hash: found.decoded for found in seen}
    if dry_run:
        outcome = Outcome(known=there)
        concerns = await service.in_thread(_foreseen, service, new, seen)
        outcome.concerns = dict(zip([sample.upload.hash for sample in new], concerns, strict=True))
    else:
        outcome = await service.in_thread(store_samples, service, new, seen, by, {"from": "service"})
        outcome.known |= there
    results = []
    for sample in samples:
        digest = sample.upload.hash
        first = hashes[digest] is sample
        results.append(
            SampleResult(
                **dict(show_sample(sample.upload, judged[digest])),
                state="known" if digest in outcome.known or not first else "enrolled",
                row=outcome.rows.get(digest) or outcome.known.get(digest),
                concerns=outcome.concerns.get(digest, []) if first else [],
            )
        )
    return Enrolled(dry_run=dry_run, entry=outcome.entry, samples=results)


async def see_labelled(service: Service, samples: Sequence[Labelled]) -> list[Seen]:
    """Decode and embed samples that are to be enrolled."""
    uploads, cameras = [s.upload for s in samples], [s.labels.camera for s in samples]
    return await service.see(uploads, cameras, thumbnail=True)


def find_known(service: Service, hashes: Sequence[str]) -> dict[str, int]:
    """Hash -> row of samples that are in the gallery."""
    return {row.hash: row.id for row in service.store.rows(Filter(hashes=list(hashes)))}


def store_samples(
    service: Service,
    samples: Sequence[Labelled],
    seen: Sequence[Seen],
    by: str,
    details: Mapping[str, object],
    continues: int | None = None,
) -> Outcome:
    """Write samples into the gallery, in one commit; when this returns they are on disk.

    Those that came into the gallery meanwhile are left out.
    """
    outcome = Outcome(entry=None)
    with service.writing:
        outcome.known = find_known(service, [found.upload.hash for found in seen])
        pairs = [(s, f) for s, f in zip(samples, seen, strict=True) if f.upload.hash not in outcome.known]
        if not pairs:
            return outcome
        rows = [_new_row(service, sample, found) for sample, found in pairs]
        change = Change("enrol", by, dict(details), rows=rows, continues=continues)
        outcome.entry = service.store.commit(change)
        outcome.rows = find_known(service, [row.hash for row in rows])
    which = Filter(hashes=[row.hash for row in rows])
    for concern in find_concerns(service.store, which, show_progress=False):
        outcome.concerns[concern.row.hash] = list(concern.reasons)
    return outcome


def _new_row(service: Service, sample: Labelled, found: Seen) -> NewRow:
    labels, keep = sample.labels, service.settings.keep_images
    return NewRow(
        feature=found.feature,
        modalities=tuple(found.upload.images),
        **labels.model_dump(include={"identity", "group", "camera"}),
        time=parse_time(labels.time or ""),
        files=keep_images(service.settings.images, found.upload.images) if keep else {},
        hash=found.upload.hash,
        quality=found.decoded.quality,
        reasons=found.decoded.reasons,
        thumbnail=found.decoded.thumbnail,
    )


def _foreseen(service: Service, samples: Sequence[Labelled], seen: Sequence[Seen]) -> list[list[str]]:
    """Per sample why one would have to look at it; what `find_concerns` says once it is enrolled."""
    if not seen:
        return []
    query = service.query(seen, pooled=False).prepared
    near = neighbour_reasons(service.store, query, [(0, sample.labels.identity) for sample in samples])
    return [[*found.decoded.reasons, *reasons] for found, reasons in zip(seen, near, strict=True)]
