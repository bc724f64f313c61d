"""What is in the gallery: rows, identities, cameras, pictures, clusters, the log, the calibration."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath
from pydantic import Field

from slimreid.errors import DataError
from slimreid.gallery.clusters import propose
from slimreid.gallery.decisions.calibration import RATES
from slimreid.gallery.enrolment.images import encode_jpeg, split_thumbnail
from slimreid.gallery.store import rows as stored
from slimreid.serve.errors import NotFoundError
from slimreid.serve.jobs.runner import new_state
from slimreid.serve.kept_images import larger_picture
from slimreid.serve.routes.common import Admin, AnyJobs, AnyService, Viewer
from slimreid.serve.routes.enrolling import show_job
from slimreid.serve.schemas.enrolling import Job
from slimreid.serve.schemas.fields import LARGEST_ID, Rate
from slimreid.serve.schemas.rows import (
    CameraList,
    Cluster,
    ClusterList,
    Filters,
    Identity,
    IdentityPage,
    LogPage,
    Row,
    RowPage,
)
from slimreid.serve.schemas.service import Calibrate, Calibration
from slimreid.serve.service import Service
from slimreid.serve.views import read_filter, show_calibration, show_entry, show_row

router = APIRouter(tags=["gallery"])
Limit = Annotated[int, Query(ge=1, le=1000)]
RowNumber = Annotated[int, InPath(ge=1, le=LARGEST_ID)]
Modality = Annotated[str | None, Query(max_length=40)]
JPEG = {200: {"content": {"image/jpeg": {}}, "description": "A picture."}}


@router.get("/identities")
async def identities(
    service: AnyService,
    who: Viewer,
    query: Annotated[str, Query(max_length=200)] = "",
    after: Annotated[str, Query(max_length=200)] = "",
    limit: Limit = 100,
) -> IdentityPage:
    """Identities by name, those that hold `query`."""
    sizes = await service.in_thread(service.store.identities)
    names = sorted(name for name in sizes if name and query.casefold() in name.casefold())
    start = bisect_right(names, after) if after else 0
    page = names[start : start + limit]
    return IdentityPage(
        identities=[Identity(name=name, rows=sizes[name]) for name in page],
        total=len(names),
        next=page[-1] if start + limit < len(names) else None,
    )


@router.get("/cameras")
async def cameras(service: AnyService, who: Viewer) -> CameraList:
    """Cameras that rows name."""
    found = await service.in_thread(service.cameras)
    return CameraList(cameras=[Identity(name=n, rows=c) for n, c in found.items()])


class RowFilter(Filters):
    """Which rows, and how many of them."""

    unknown: bool = False
    """Only rows without identity."""
    after: int = Field(default=0, ge=0, le=LARGEST_ID)
    limit: int = Field(default=100, ge=1, le=1000)


@router.get("/rows")
async def rows(service: AnyService, who: Viewer, which: Annotated[RowFilter, Query()]) -> RowPage:
    """Rows by ascending id."""
    if which.unknown:
        which = which.model_copy(update={"identity": [""]})
    chosen = read_filter(which)
    found = await service.in_thread(service.store.rows, chosen, which.limit + 1, which.after)
    page = found[: which.limit]
    return RowPage(
        rows=[show_row(row) for row in page],
        total=await service.in_thread(service.store.count, chosen),
        next=page[-1].id if len(found) > len(page) else None,
    )


@router.get("/rows/{row}")
async def one_row(service: AnyService, who: Viewer, row: RowNumber) -> Row:
    """One row by its number; 404 where there is none."""
    return show_row(await service.in_thread(_find, service, row))


@router.get("/rows/{row}/thumbnail", response_class=Response, responses=JPEG)  # type: ignore[arg-type]
async def thumbnail(service: AnyService, who: Viewer, row: RowNumber, modality: Modality = None) -> Response:
    """The modalities of a row side by side, or one of them."""
    content = await service.in_thread(_thumbnail, service, row, modality)
    return Response(content, media_type="image/jpeg")


@router.get("/rows/{row}/image", response_class=Response, responses=JPEG)  # type: ignore[arg-type]
async def image(service: AnyService, who: Viewer, row: RowNumber, modality: Modality = None) -> Response:
    """One modality of a row (default: the first) in a useful size; the thumbnail where its file is gone."""
    found = await service.in_thread(_find, service, row)
    name = modality or found.modalities[0]
    _check_modality(found, name)
    ref = found.files.get(name)
    content = None
    if ref is not None and Path(ref.path).is_file():
        try:
            content = await service.in_thread(larger_picture, service.decoders, ref)
        except DataError:
            content = None  # changed or damaged since; the thumbnail is what was enrolled
    if content is None:
        content = await service.in_thread(_thumbnail, service, row, name)
    return Response(content, media_type="image/jpeg")


def _find(service: Service, row: int) -> stored.Row:
    found = service.store.rows(stored.Filter(ids=[row]))
    if not found:
        raise NotFoundError(f"there is no row {row}")
    return found[0]


def _check_modality(row: stored.Row, name: str) -> None:
    if name not in row.modalities:
        raise NotFoundError(f"row {row.id} has no such image; it has {', '.join(row.modalities)}")


def _thumbnail(service: Service, row: int, modality: str | None) -> bytes:
    found = _find(service, row)
    content = service.store.thumbnails([row]).get(row)
    if not content:
        raise NotFoundError(f"row {row} has no picture")
    if modality is None:
        return content
    _check_modality(found, modality)
    return encode_jpeg(split_thumbnail(content, found.modalities)[modality])


@router.get("/clusters")
async def clusters(
    service: AnyService,
    who: Viewer,
    rate: Rate | None = None,
    threshold: Annotated[float | None, Query(allow_inf_nan=False)] = None,
) -> ClusterList:
    """Rows without identity that are alike, at the threshold of a rate or at a given one."""
    unknown = stored.Filter(identities=[""])
    if not await service.in_thread(service.store.count, unknown):
        return ClusterList(clusters=[], alone=0, threshold=threshold or 0.0)
    found = await service.in_thread(propose, service.store, unknown, rate or RATES[0], threshold)
    return ClusterList(
        clusters=[
            Cluster(name=name, rows=[show_row(row) for row in members])
            for name, members in found.rows.items()
            if name
        ],
        alone=len(found.rows.get("", ())),
        threshold=found.threshold,
    )


@router.get("/log")
async def log(
    service: AnyService,
    who: Viewer,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    limit: Limit = 50,
) -> LogPage:
    """Changes and searches, newest first."""
    newest = await service.in_thread(service.store.log, 1)
    # The store counts from the newest entry, and its numbers have no gaps: that many come before.
    skip = max(0, newest[0].id - before + 1) if before is not None and newest else 0
    found = await service.in_thread(service.store.log, skip + limit + 1)
    left = [entry for entry in found if before is None or entry.id < before]
    page = left[:limit]
    return LogPage(
        entries=[show_entry(entry) for entry in page],
        next=page[-1].id if len(left) > len(page) else None,
    )


@router.get("/calibration")
async def calibration(service: AnyService, who: Viewer) -> Calibration:
    """The thresholds of the gallery."""
    return await service.in_thread(show_calibration, service.store)


@router.post("/calibration", status_code=202)
async def calibrate(service: AnyService, jobs: AnyJobs, who: Admin, given: Calibrate) -> Job:
    """Calibrate the gallery by its own rows, as a job."""
    state = new_state("calibrate", who.name, rates=given.rates or ())
    return show_job(await service.in_thread(jobs.create, state))
