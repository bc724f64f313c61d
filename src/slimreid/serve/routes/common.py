"""What routes have in common: the service, who asks, how images are described in OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel

from slimreid.errors import DataError
from slimreid.serve.access import Who, require_role
from slimreid.serve.http.uploads import Sent, read_upload
from slimreid.serve.jobs.runner import Jobs
from slimreid.serve.schemas.enrolling import Labels
from slimreid.serve.schemas.service import Problem
from slimreid.serve.service import Service
from slimreid.serve.settings import Role

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {"application/problem+json": {}}, "description": text}
    for status, text in {
        401: "No valid token.",
        403: "Not allowed.",
        404: "Not found.",
        408: "Sent too slowly.",
        409: "The gallery cannot do this.",
        413: "Too large.",
        422: "A field or an image is wrong.",
        429: "Too many requests.",
        503: "Busy; try again after `Retry-After` seconds.",
    }.items()
}
"""Answers that every route may give."""


# What is awaited costs nothing; a plain function would be run in a thread, for every request.
async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _jobs(request: Request) -> Jobs:
    found: Jobs = request.app.state.jobs
    return found


def _at_least(role: Role) -> Callable[[Request], Awaitable[Who]]:
    async def check(request: Request) -> Who:
        return require_role(request.state.who, role)

    check.__name__ = role
    return check


AnyService = Annotated[Service, Depends(_service)]
AnyJobs = Annotated[Jobs, Depends(_jobs)]
Viewer = Annotated[Who, Depends(_at_least("viewer"))]
Editor = Annotated[Who, Depends(_at_least("editor"))]
Admin = Annotated[Who, Depends(_at_least("admin"))]


async def read_images(request: Request, service: Service) -> Sent:
    """The samples and fields of a request; raises `DataError` where there is no image."""
    sent = await read_upload(request, service.info.modalities, service.settings.request)
    if not sent.samples:
        raise DataError(f"there is no image; send it as a part '{service.info.modalities[0]}'")
    return sent


def images_body(modalities: Sequence[str], form: type[BaseModel] | None = None) -> dict[str, Any]:
    """How OpenAPI describes a body with images and the fields of a form."""
    properties: dict[str, Any] = {}
    for suffix, number in (("", "0"), (".1", "1, ...")):
        for name in modalities:
            text = f"{name} image of sample {number}"
            properties[f"{name}{suffix}"] = {"type": "string", "format": "binary", "description": text}
    schema = {"type": "object", "properties": properties}
    if form is not None:
        described = form.model_json_schema()
        properties |= described["properties"]
        if definitions := described.get("$defs"):
            schema["$defs"] = definitions
        if issubclass(form, Labels):
            properties["identity.1"] = {"type": "string", "description": "of sample 1 alone, ..."}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
