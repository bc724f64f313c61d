"""From what the gallery knows to what the service answers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from slimreid.errors import SlimReIDWarning
from slimreid.gallery.answers import Answer
from slimreid.gallery.decisions import calibration as decisions
from slimreid.gallery.decisions.rates import Estimate
from slimreid.gallery.embedder import Embedder
from slimreid.gallery.identification import present_bound, read_calibration
from slimreid.gallery.store import rows as stored
from slimreid.gallery.store.contract import Store
from slimreid.inference.embed import as_samples, make_batch
from slimreid.inference.loaded_model import LoadedModel
from slimreid.serve import schemas
from slimreid.serve.errors import NotAvailableError
from slimreid.serve.schemas import PatchGrid
from slimreid.serve.service import Seen
from slimreid.times import parse_time


def show_row(row: stored.Row) -> schemas.Row:
    """A row; where its files lie is nobody's business."""
    return schemas.Row(
        id=row.id,
        identity=row.identity,
        group=row.group,
        modalities=list(row.modalities),
        camera=row.camera,
        time=row.time,
        quality=row.quality,
        reasons=list(row.reasons),
        thumbnail=f"/v1/rows/{row.id}/thumbnail",
    )


def show_matches(answer: Answer) -> list[schemas.Match]:
    """Rows that were found."""
    return [schemas.Match(rank=m.rank, score=m.score, row=show_row(m.row)) for m in answer.matches]


def show_answer(answer: Answer) -> schemas.Answer:
    """An answer to a search."""
    return schemas.Answer(
        query=answer.query,
        modalities=list(answer.modalities),
        searched=answer.searched,
        matches=show_matches(answer),
    )


def show_sample(seen: Seen) -> schemas.Sample:
    """What was seen in the images of a sample."""
    return schemas.Sample(
        number=seen.upload.number,
        modalities=list(seen.upload.images),
        quality=seen.decoded.quality,
        reasons=list(seen.decoded.reasons),
    )


def show_entry(entry: stored.LogEntry) -> schemas.LogEntry:
    """A line of the log, without paths of this machine."""
    details = {name: _without_folders(value) for name, value in entry.details.items()}
    return schemas.LogEntry(**{**vars(entry), "details": details})


def _without_folders(value: object) -> object:
    if isinstance(value, str):
        return value.rpartition("/")[2] if value.startswith("/") else value
    if isinstance(value, (list, tuple)):
        return [_without_folders(item) for item in value]
    return value


def read_filter(form: schemas.Filters) -> stored.Filter:
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


def calibration_state(store: Store) -> schemas.CalibrationState:
    """Whether the gallery can decide."""
    found = read_calibration(store)
    if found is None:
        reason = "the gallery is not calibrated: calibrate it first"
        return schemas.CalibrationState(state="none", reason=reason, rates=[])
    validity = found.valid_for(present_bound(store))
    return schemas.CalibrationState(state=validity.state, reason=validity.reason, rates=list(found.rates))


def show_calibration(store: Store) -> schemas.Calibration:
    """All thresholds of the gallery."""
    found = read_calibration(store)
    state = calibration_state(store)
    return schemas.Calibration(
        **state.model_dump(),
        identities=found.bound.identities if found else None,
        rows=found.bound.rows if found else None,
        points=_show_points(found.points) if found else [],
    )


def _show_points(points: Sequence[decisions.Point]) -> list[schemas.CalibrationPoint]:
    return [
        schemas.CalibrationPoint(
            subset=point.subset,
            rate=point.rate,
            searches=point.searches,
            strangers=point.identities,
            threshold=_show_estimate(point.threshold),
            fnir=_show_estimate(point.fnir),
            achieved=_show_estimate(point.achieved),
            refusal=point.refusal,
        )
        for point in points
    ]


def _show_estimate(found: Estimate | None) -> schemas.Estimate | None:
    return None if found is None else schemas.Estimate(**found.to_dict())


def can_show_patches(model: Embedder) -> bool:
    """Whether a model says which patches it kept: one with token reduction, trained or exported."""
    return isinstance(model, LoadedModel) and model.reduces_tokens


def kept_patches(model: Embedder, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, PatchGrid]]:
    """Per sample and modality the patches that were kept to the end; raises `NotAvailableError`."""
    if not isinstance(model, LoadedModel) or not model.reduces_tokens:
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
