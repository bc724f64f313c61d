"""How the service is: health, state, figures; who is logged in."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from slimreid import __version__
from slimreid.serve import schemas
from slimreid.serve.access import COOKIE, SESSION_SECONDS, Who
from slimreid.serve.errors import BusyError
from slimreid.serve.routes.common import AnyJobs, AnyService, Viewer
from slimreid.serve.service import Service
from slimreid.serve.views import calibration_state, can_show_patches

router = APIRouter(tags=["service"])
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/health")
async def health(service: AnyService) -> schemas.Health:
    """Whether the process answers."""
    return schemas.Health(status="stopping" if service.stopping.is_set() else "ok")


@router.get("/ready")
async def ready(service: AnyService) -> schemas.Health:
    """Whether requests can be answered: the gallery can be read and the queue is not full."""
    if service.stopping.is_set():
        raise BusyError("the service is stopping")
    await service.in_thread(service.store.count)
    if service.batcher.reserved >= service.batcher.capacity:
        raise BusyError("the queue is full")
    return schemas.Health(status="ok")


@router.get("/session")
async def who_am_i(request: Request, service: AnyService) -> schemas.Session:
    """Who is asking, and whether they must log in."""
    return _session(service, request.state.who)


@router.post("/session")
async def log_in(
    request: Request, response: Response, login: schemas.Login, service: AnyService
) -> schemas.Session:
    """Exchange a token for a cookie, as the page does."""
    client = request.client.host if request.client else ""
    who, cookie = service.access.log_in(login.token, client)
    response.set_cookie(COOKIE, cookie, max_age=SESSION_SECONDS, **service.access.cookie_options())  # type: ignore[arg-type]
    return _session(service, who)


@router.delete("/session")
async def log_out(request: Request, response: Response, service: AnyService) -> schemas.Session:
    """End the session of this cookie."""
    service.access.log_out(request.headers)
    response.delete_cookie(COOKIE, **service.access.cookie_options())  # type: ignore[arg-type]
    return _session(service, None if service.access.login else request.state.who)


def _session(service: Service, who: Who | None) -> schemas.Session:
    return schemas.Session(
        login=service.access.login, name=who.name if who else None, role=who.role if who else None
    )


@router.get("/status")
async def status(service: AnyService, who: Viewer) -> schemas.Status:
    """State of the service: gallery, model, calibration, limits, load."""
    return await service.in_thread(_status, service)


def _status(service: Service) -> schemas.Status:
    sizes = service.store.identities()
    limits, load = service.settings.request, service.metrics
    return schemas.Status(
        version=__version__,
        gallery=service.name,
        rows=sum(sizes.values()),
        identities=len(set(sizes) - {""}),
        unknown=sizes.get("", 0),
        uptime=time.time() - load.started,
        model=_model(service),
        calibration=calibration_state(service.store),
        limits=schemas.Limits(
            body_bytes=limits.body, images=limits.images, pixels=limits.pixels, seconds=limits.seconds
        ),
        load=schemas.Load(
            queued=service.batcher.reserved,
            capacity=service.batcher.capacity,
            requests=load.requests,
            embedded=load.embedded,
            refused=load.refused,
        ),
    )


def _model(service: Service) -> schemas.ModelState:
    info, model = service.info, service.model
    path = Path(str(getattr(model, "path", info.path)))
    kinds = {"ExportedModel": "onnxruntime", "TrainedModel": "torch"}
    return schemas.ModelState(
        name=path.parent.name or path.name,
        fingerprint=info.fingerprint,
        feature=info.feature,
        dimension=info.dimension,
        modalities=list(info.modalities),
        engine=kinds.get(type(model).__name__, "other"),  # type: ignore[arg-type]
        precision=str(getattr(model, "precision", "unknown")).removeprefix("onnx "),
        patches=can_show_patches(model),
    )


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: AnyService, jobs: AnyJobs, who: Viewer) -> Response:
    """Figures for Prometheus."""
    gauges = {
        "rows": await service.in_thread(service.store.count),
        "queued_samples": service.batcher.reserved,
        "queue_capacity": service.batcher.capacity,
        "requests_under_way": service.metrics.requests,
        "jobs_open": sum(not job.is_over for job in jobs.all()),
        "decoder_deaths": service.decoders.deaths,
        "start_time_seconds": service.metrics.started,
        "resident_memory_bytes": _resident(),
    }
    return Response(service.metrics.text(gauges), media_type=METRICS_TYPE)


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
