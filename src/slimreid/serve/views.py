"""From what the gallery knows to what the service answers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from slimreid.errors import SlimReIDWarning
from slimreid.gallery.answers import Answer
from slimreid.gallery.embedder import Embedder
from slimreid.gallery.identification import present_bound, read_calibration
from slimreid.gallery.store import rows as stored
from slimreid.gallery.store.contract import Store
from slimreid.inference.embed import as_samples, make_batch
from slimreid.inference.loaded_model import LoadedModel
from slimreid.serve.decoding.messages import Decoded
from slimreid.serve.errors import NotAvailableError
from slimreid.serve.http.uploads import Upload
from slimreid.serve.schemas import searching
from slimreid.serve.schemas.rows import Filters, LogEntry, Row
from slimreid.serve.schemas.searching import Match, PatchGrid, Sample
from slimreid.serve.schemas.service import Calibration, CalibrationPoint, CalibrationState
from slimreid.times import parse_time


def show_row(row: stored.Row) -> Row:
    """A row; where its files lie is nobody's business."""
    return Row(**vars(row), thumbnail=f"/v1/rows/{row.id}/thumbnail")


def show_answer(answer: Answer) -> searching.Answer:
    """An answer to a search."""
    matches = [Match(rank=m.rank, score=m.score, row=show_row(m.row)) for m in answer.matches]
    return searching.Answer(**{**vars(answer), "matches": matches})


def show_sample(upload: Upload, decoded: Decoded) -> Sample:
    """What was seen in the images of a sample."""
    return Sample(
        number=upload.number,
        modalities=list(upload.images),
        quality=decoded.quality,
        reasons=list(decoded.reasons),
    )


def show_entry(entry: stored.LogEntry) -> LogEntry:
    """A line of the log, without paths of this machine."""
    details = {name: _without_folders(value) for name, value in entry.details.items()}
    return LogEntry(**{**vars(entry), "details": details})


def _without_folders(value: object) -> object:
    if isinstance(value, str):
        return value.rpartition("/")[2] if value.startswith("/") else value
    if isinstance(value, (list, tuple)):
        return [_without_folders(item) for item in value]
    return value


def read_filter(form: Filters) -> stored.Filter:
    """The rows that a form means."""
    return stored.Filter(
        ids=form.id or None,
        identities=form.identity or None,
        groups=form.group or None,
        cameras=form.camera or None,
        modalities=form.modality or None,
        since=parse_time(form.since) if form.since else None,
        until=parse_time(form.until) if form.until else None,
    )


def calibration_state(store: Store) -> CalibrationState:
    """Whether the gallery can decide."""
    found = read_calibration(store)
    if found is None:
        reason = "the gallery is not calibrated: calibrate it first"
        return CalibrationState(state="none", reason=reason, rates=[])
    validity = found.valid_for(present_bound(store))
    return CalibrationState(state=validity.state, reason=validity.reason, rates=list(found.rates))


def show_calibration(store: Store) -> Calibration:
    """All thresholds of the gallery."""
    found = read_calibration(store)
    points = found.points if found else ()
    return Calibration(
        **dict(calibration_state(store)),
        identities=found.bound.identities if found else None,
        rows=found.bound.rows if found else None,
        points=[
            CalibrationPoint(**vars(point), strangers=point.identities, refusal=point.refusal)
            for point in points
        ],
    )


def can_show_patches(model: Embedder) -> TypeGuard[LoadedModel]:
    """Whether a model says which patches it kept: one with token reduction, trained or exported."""
    return isinstance(model, LoadedModel) and model.reduces_tokens


def kept_patches(model: Embedder, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, PatchGrid]]:
    """Per sample and modality the patches that were kept to the end; raises `NotAvailableError`."""
    if not can_show_patches(model):
        raise NotAvailableError("this model keeps all patches: it has no token reduction")
    listed = as_samples(list(samples), model.modalities)
    if not listed:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlimReIDWarning)  # nobody says which camera saw a query
        kept = model.kept_patches(make_batch(model, listed, [-1] * len(listed), 0))
    rows, columns = model.grid
    return [
        {
            name: PatchGrid(rows=rows, columns=columns, kept=sorted(numbers[m].tolist()))
            for m, name in enumerate(model.modalities)
            if name in sample
        }
        for sample, numbers in zip(listed, kept, strict=True)
    ]
