"""Enrolment: a few samples at once, or many as a job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

import anyio
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from slimreid.serve.enrolment import Labelled, enrol_samples
from slimreid.serve.http.uploads import Sent
from slimreid.serve.jobs.files import JobState
from slimreid.serve.jobs.runner import Jobs, new_state
from slimreid.serve.routes.common import AnyJobs, AnyService, Editor, Viewer, images_body, read_images
from slimreid.serve.schemas.enrolling import EnrolForm, Enrolled, Job, JobList, Labels, NewJob
from slimreid.serve.service import Service

JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
_LOOK = 0.1
"""Seconds between two looks at a job."""
_ALIVE = 10.0
"""Seconds after which a stream says that it is alive."""


def enrol_routes(modalities: Sequence[str]) -> APIRouter:
    """The routes, for a model of these modalities."""
    router = APIRouter(tags=["enrolment"])

    @router.post(
        "/enrol",
        status_code=201,
        openapi_extra=images_body(modalities, EnrolForm),
        responses={200: {"model": Enrolled, "description": "Nothing was enrolled."}},
    )
    async def enrol(request: Request, response: Response, service: AnyService, who: Editor) -> Enrolled:
        """Enrol samples; when this answers, they are on disk. What is there already is not enrolled again."""
        sent = await read_images(request, service)
        dry_run = sent.form(EnrolForm).dry_run
        found = await enrol_samples(service, _labelled(sent, EnrolForm), who.name, dry_run)
        if found.entry is None:
            response.status_code = 200
        return found

    @router.post("/jobs/{job}/samples", status_code=202, openapi_extra=images_body(modalities, Labels))
    async def add_samples(
        request: Request, service: AnyService, jobs: AnyJobs, who: Editor, job: JobId
    ) -> Job:
        """Give samples to a job; when this answers, they are on disk and will be enrolled."""
        usual = jobs.get(job).labels
        samples = _labelled(await read_images(request, service), Labels, usual)
        return show_job(await service.in_thread(jobs.add, job, samples))

    return router


def _labelled(sent: Sent, form: type[Labels], usual: Mapping[str, str] = {}) -> list[Labelled]:
    found = []
    for sample in sent.samples:
        own = sent.form(form, sample.number).model_dump(include=set(Labels.model_fields), exclude_unset=True)
        found.append(Labelled(sample, Labels.model_validate({**usual, **own})))
    return found


job_router = APIRouter(tags=["enrolment"])


@job_router.get("/jobs")
async def list_jobs(jobs: AnyJobs, who: Viewer) -> JobList:
    """Jobs, newest first."""
    return JobList(jobs=[show_job(state) for state in jobs.all()])


@job_router.post("/jobs", status_code=201)
async def begin_job(service: AnyService, jobs: AnyJobs, who: Editor, given: NewJob) -> Job:
    """Begin an enrolment in many parts."""
    state = new_state("enrol", who.name, labels=given.model_dump(exclude_unset=True, exclude_none=True))
    return show_job(await service.in_thread(jobs.create, state))


@job_router.post("/jobs/{job}/finish")
async def finish_job(service: AnyService, jobs: AnyJobs, who: Editor, job: JobId) -> Job:
    """Say that no more samples will come."""
    return show_job(await service.in_thread(jobs.finish, job))


@job_router.get("/jobs/{job}")
async def one_job(jobs: AnyJobs, who: Viewer, job: JobId) -> Job:
    """A job as it is now."""
    return show_job(jobs.get(job))


@job_router.delete("/jobs/{job}")
async def cancel_job(service: AnyService, jobs: AnyJobs, who: Editor, job: JobId) -> Job:
    """Drop what is not enrolled yet; what is stays, and can be undone."""
    return show_job(await service.in_thread(jobs.cancel, job))


@job_router.get(
    "/jobs/{job}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "A `Job` with every change."}},
)
async def job_events(service: AnyService, jobs: AnyJobs, who: Viewer, job: JobId) -> StreamingResponse:
    """The job whenever it changes, as server-sent events, until it is over."""
    jobs.get(job)
    return StreamingResponse(_events(service, jobs, job), media_type="text/event-stream")


async def _events(service: Service, jobs: Jobs, job: str) -> AsyncIterator[str]:
    last, silent = "", 0.0
    while not service.stopping.is_set():
        state = jobs.get(job)
        text = json.dumps(show_job(state).model_dump())
        if text != last:
            last, silent = text, 0.0
            yield f"event: job\ndata: {text}\n\n"
        if state.is_over:
            return
        await anyio.sleep(_LOOK)
        silent += _LOOK
        if silent >= _ALIVE:
            silent = 0.0
            yield ": alive\n\n"


def show_job(state: JobState) -> Job:
    """A job, without what only the service needs."""
    return Job(**{name: getattr(state, name) for name in Job.model_fields})
