"""Images in, answers out: embed, search, identify, kept patches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter, Request

from slimreid.errors import DataError
from slimreid.gallery.answers import Answer, best_identities, best_rows, make_answers
from slimreid.gallery.decisions.calibration import RATES, Calibration, unsure_rate
from slimreid.gallery.identification import decide, present_bound, read_calibration
from slimreid.gallery.queries import Query
from slimreid.gallery.store.rows import Filter
from slimreid.inference.similarity import Similarity
from slimreid.modalities import subset_name
from slimreid.serve import schemas
from slimreid.serve.http.uploads import Sent, read_upload
from slimreid.serve.routes.common import AnyService, Viewer, images_body
from slimreid.serve.service import Seen, Service
from slimreid.serve.views import kept_patches, read_filter, show_answer, show_matches, show_sample


def search_routes(modalities: Sequence[str]) -> APIRouter:
    """The routes, for a model of these modalities."""
    router = APIRouter(tags=["search"])

    @router.post("/embed", openapi_extra=images_body(modalities, schemas.EmbedForm))
    async def embed(request: Request, service: AnyService, who: Viewer) -> schemas.Embedded:
        """Features of samples, L2-normalised."""
        _, seen = await _see(request, service, schemas.EmbedForm)
        info = service.info
        samples = [
            schemas.EmbeddedSample(**show_sample(found).model_dump(), embedding=found.feature.tolist())
            for found in seen
        ]
        return schemas.Embedded(
            feature=info.feature, dimension=info.dimension, fingerprint=info.fingerprint, samples=samples
        )

    @router.post("/search", openapi_extra=images_body(modalities, schemas.SearchForm))
    async def search(request: Request, service: AnyService, who: Viewer) -> schemas.SearchResult:
        """The rows or identities that are most similar to each sample."""
        sent, seen = await _see(request, service, schemas.SearchForm)
        form = sent.form(schemas.SearchForm)
        query = service.query(seen, form.pooled)
        answers = await service.in_thread(_search, service, query, form, who.name)
        return schemas.SearchResult(answers=[show_answer(answer) for answer in answers])

    @router.post("/identify", openapi_extra=images_body(modalities, schemas.IdentifyForm))
    async def identify(request: Request, service: AnyService, who: Viewer) -> schemas.IdentifyResult:
        """Who each sample shows, with the rate of error behind the answer, and the ranked matches."""
        sent, seen = await _see(request, service, schemas.IdentifyForm)
        form = sent.form(schemas.IdentifyForm)
        query = service.query(seen, form.pooled)
        answers = await service.in_thread(_identify, service, query, form, who.name)
        return schemas.IdentifyResult(answers=answers, samples=[show_sample(found) for found in seen])

    @router.post("/patches", openapi_extra=images_body(modalities))
    async def patches(request: Request, service: AnyService, who: Viewer) -> schemas.KeptPatches:
        """Which patches the model kept to the end; 404 where it does not say."""
        await service.in_thread(kept_patches, service.model, [])
        sent = await _read(request, service)
        with service.batcher.reserve(len(sent.samples)):
            decoded = await service.decode(sent.samples)
            images = [found.images for found in decoded]
            found = await service.in_thread(kept_patches, service.model, images)
        return schemas.KeptPatches(samples=found)

    return router


async def _read(request: Request, service: Service) -> Sent:
    sent = await read_upload(request, service.info.modalities, service.settings.request)
    if not sent.samples:
        raise DataError(f"there is no image; send it as a part '{service.info.modalities[0]}'")
    return sent


async def _see(request: Request, service: Service, form: type[schemas.EmbedForm]) -> tuple[Sent, list[Seen]]:
    """The samples of a request; its fields are checked before anything is decoded."""
    sent = await _read(request, service)
    camera = sent.form(form).query_camera
    return sent, await service.see(sent.samples, [camera] * len(sent.samples))


def _search(service: Service, query: Query, form: schemas.SearchForm, by: str) -> list[Answer]:
    answers = _rank(service, query, form, read_filter(form), None)
    details = {"queries": list(query.sources), "k": form.k, "identities": form.identities}
    service.store.note("search", by, sum(len(answer.matches) for answer in answers), details)
    return answers


def _rank(
    service: Service, query: Query, form: schemas.SearchForm, which: Filter, scale: Similarity | None
) -> list[Answer]:
    find = best_identities if form.identities else best_rows
    found = find(service.store, query.prepared, form.k, which, scale)
    return make_answers(service.store, query, found, service.store.count(which))


def _identify(
    service: Service, query: Query, form: schemas.IdentifyForm, by: str
) -> list[schemas.Identification]:
    store, which = service.store, read_filter(form)
    calibration = read_calibration(store)
    if calibration is not None and not calibration.valid_for(present_bound(store)):
        calibration = None
    rate = form.rate if form.rate is not None else _usual_rate(calibration)
    decisions = decide(store, query, rate, which)
    ranked = _rank(service, query, form, which, calibration.similarity if calibration else None)
    known = sum(found.decision.state == "known" for found in decisions)
    store.note("identify", by, known, {"queries": list(query.sources), "rate": rate})
    threshold = partial(_threshold, service, calibration)
    answers = []
    for found, answer in zip(decisions, ranked, strict=True):
        decision = found.decision
        answers.append(
            schemas.Identification(
                query=found.query,
                modalities=list(found.modalities),
                searched=answer.searched,
                matches=show_matches(answer),
                state=decision.state,
                name=decision.name,
                reason=decision.reason,
                rate=decision.rate,
                candidates=[schemas.Candidate(name=c.name, score=c.score) for c in decision.candidates],
                strict=threshold(found.modalities, rate),
                lax=threshold(found.modalities, unsure_rate(rate)),
            )
        )
    return answers


def _usual_rate(calibration: Calibration | None) -> float:
    return calibration.rates[0] if calibration is not None and calibration.rates else RATES[0]


def _threshold(
    service: Service, calibration: Calibration | None, modalities: Sequence[str], rate: float
) -> float | None:
    if calibration is None:
        return None
    found = calibration.point(subset_name(modalities, service.info.modalities), rate).threshold
    return None if found is None else found.value
