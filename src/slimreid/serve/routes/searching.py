"""Images in, answers out: embed, search, identify, kept patches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter, Request

from slimreid.gallery.answers import find_answers, search_gallery
from slimreid.gallery.decisions.calibration import RATES, Calibration, unsure_rate
from slimreid.gallery.identification import decide, present_bound, read_calibration
from slimreid.gallery.queries import Query
from slimreid.modalities import subset_name
from slimreid.serve.http.uploads import Sent
from slimreid.serve.routes.common import AnyService, Viewer, images_body, read_images
from slimreid.serve.schemas.searching import (
    Embedded,
    EmbeddedSample,
    EmbedForm,
    Identification,
    IdentifyForm,
    IdentifyResult,
    KeptPatches,
    SearchForm,
    SearchResult,
)
from slimreid.serve.service import Seen, Service
from slimreid.serve.views import kept_patches, read_filter, show_answer, show_sample


def search_routes(modalities: Sequence[str]) -> APIRouter:
    """The routes, for a model of these modalities."""
    router = APIRouter(tags=["search"])

    @router.post("/embed", openapi_extra=images_body(modalities, EmbedForm))
    async def embed(request: Request, service: AnyService, who: Viewer) -> Embedded:
        """Features of samples, L2-normalised."""
        _, seen = await _see(request, service, EmbedForm)
        info = service.info
        samples = [
            EmbeddedSample(**dict(show_sample(s.upload, s.decoded)), embedding=s.feature.tolist())
            for s in seen
        ]
        return Embedded(
            feature=info.feature, dimension=info.dimension, fingerprint=info.fingerprint, samples=samples
        )

    @router.post("/search", openapi_extra=images_body(modalities, SearchForm))
    async def search(request: Request, service: AnyService, who: Viewer) -> SearchResult:
        """The rows or identities that are most similar to each sample."""
        sent, seen = await _see(request, service, SearchForm)
        form = sent.form(SearchForm)
        query = service.query(seen, form.pooled)
        which, by = read_filter(form), who.name
        answers = await service.in_thread(
            search_gallery, service.store, query, form.k, which, by, identities=form.identities
        )
        return SearchResult(answers=[show_answer(answer) for answer in answers])

    @router.post("/identify", openapi_extra=images_body(modalities, IdentifyForm))
    async def identify(request: Request, service: AnyService, who: Viewer) -> IdentifyResult:
        """Who each sample shows, with the rate of error behind the answer, and the ranked matches."""
        sent, seen = await _see(request, service, IdentifyForm)
        form = sent.form(IdentifyForm)
        query = service.query(seen, form.pooled)
        answers = await service.in_thread(_identify, service, query, form, who.name)
        return IdentifyResult(answers=answers, samples=[show_sample(s.upload, s.decoded) for s in seen])

    @router.post("/patches", openapi_extra=images_body(modalities))
    async def patches(request: Request, service: AnyService, who: Viewer) -> KeptPatches:
        """Which patches the model kept to the end; 404 where it does not say."""
        await service.in_thread(kept_patches, service.model, [])
        sent = await read_images(request, service)
        with service.batcher.reserve(len(sent.samples)):
            decoded = await service.decode(sent.samples)
            images = [found.images for found in decoded]
            found = await service.in_thread(kept_patches, service.model, images)
        return KeptPatches(samples=found)

    return router


async def _see(request: Request, service: Service, form: type[EmbedForm]) -> tuple[Sent, list[Seen]]:
    """The samples of a request; its fields are checked before anything is decoded."""
    sent = await read_images(request, service)
    camera = sent.form(form).query_camera
    return sent, await service.see(sent.samples, [camera] * len(sent.samples))


def _identify(service: Service, query: Query, form: IdentifyForm, by: str) -> list[Identification]:
    store, which = service.store, read_filter(form)
    calibration = read_calibration(store)
    if calibration is not None and not calibration.valid_for(present_bound(store)):
        calibration = None
    usual = calibration.rates if calibration is not None and calibration.rates else RATES
    rate = form.rate if form.rate is not None else usual[0]
    decisions = decide(store, query, rate, which, by)
    scale = calibration.similarity if calibration else None
    ranked = find_answers(store, query, form.k, which, scale, identities=form.identities)
    threshold = partial(_threshold, service, calibration)
    return [
        Identification(
            **dict(show_answer(answer)),
            **{**vars(found.decision), "candidates": list(map(vars, found.decision.candidates))},
            strict=threshold(found.modalities, rate),
            lax=threshold(found.modalities, unsure_rate(rate)),
        )
        for found, answer in zip(decisions, ranked, strict=True)
    ]


def _threshold(
    service: Service, calibration: Calibration | None, modalities: Sequence[str], rate: float
) -> float | None:
    if calibration is None:
        return None
    found = calibration.point(subset_name(modalities, service.info.modalities), rate).threshold
    return None if found is None else found.value
