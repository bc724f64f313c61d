"""The whole application: routes, page, errors, guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from slimreid import __version__
from slimreid.errors import SlimReIDError
from slimreid.serve.http.guard import Guard
from slimreid.serve.http.problems import error_problem, status_problem
from slimreid.serve.jobs.runner import Jobs
from slimreid.serve.routes import editing, enrolling, rows, searching, system
from slimreid.serve.routes.common import PROBLEMS
from slimreid.serve.service import Service

PAGE = Path(__file__).parents[1] / "page"
_MOST_ERRORS = 20
_ABOUT = """Who is this? Search, identify and enrol people or vehicles, in any subset of modalities.

Send a token as `Authorization: Bearer TOKEN` where the service asks for one."""


def create_app(service: Service) -> FastAPI:
    """The application of a service; it stops the service when it ends."""
    jobs = Jobs(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        await jobs.start()
        yield
        await jobs.stop()
        await service.in_thread(service.stop)

    app = FastAPI(
        title="SlimReID",
        version=__version__,
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service, app.state.jobs = service, jobs
    modalities = service.info.modalities
    for router in (
        system.router,
        searching.search_routes(modalities),
        rows.router,
        editing.router,
        enrolling.enrol_routes(modalities),
        enrolling.job_router,
    ):
        app.include_router(router, prefix="/v1", responses=PROBLEMS)
    app.add_exception_handler(SlimReIDError, _ours)
    app.add_exception_handler(ValidationError, _wrong_field)
    app.add_exception_handler(RequestValidationError, _wrong_field)
    app.add_exception_handler(HTTPException, _http)
    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    app.add_middleware(Guard, service=service)
    return app


def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, SlimReIDError)
    return error_problem(error, request.state.instance, request.app.state.service.hidden)


def _wrong_field(request: Request, error: Exception) -> Response:
    assert isinstance(error, (ValidationError, RequestValidationError))
    found: list[dict[str, Any]] = [dict(item) for item in error.errors()]
    errors = [
        {
            "field": ".".join(str(part)[:100] for part in item["loc"] if part != "body"),
            "message": str(item["msg"])[:300],
        }
        for item in found[:_MOST_ERRORS]
    ]
    first = errors[0] if errors else {"field": "", "message": "wrong"}
    detail = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
    return status_problem(422, detail, request.state.instance, errors)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = status_problem(error.status_code, str(error.detail), request.state.instance)
    response.headers.update(error.headers or {})
    return response
