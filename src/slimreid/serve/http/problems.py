"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDError
from slimreid.gallery.errors import GalleryBusyError, GalleryDamagedError, GalleryError, GalleryFullError
from slimreid.serve.errors import (
    BusyError,
    NotAllowedError,
    NotAvailableError,
    NotFoundError,
    NotLoggedInError,
    RateError,
    TooLargeError,
    TooSlowError,
)

TYPE = "application/problem+json"
RETRY_AFTER = "1"
"""Seconds after which a refused request may be tried again."""

_KINDS: tuple[tuple[type[SlimReIDError], int, str], ...] = (
    (NotLoggedInError, 401, "a token is needed"),
    (NotAllowedError, 403, "not allowed"),
    (NotFoundError, 404, "not found"),
    (NotAvailableError, 404, "not available here"),
    (TooSlowError, 408, "the request was sent too slowly"),
    (TooLargeError, 413, "the request is too large"),
    (RateError, 429, "too many requests"),
    (BusyError, 503, "the service is busy"),
    (GalleryBusyError, 503, "the gallery is busy"),
    (GalleryFullError, 503, "the disk is full"),
    (GalleryDamagedError, 503, "the gallery is damaged"),
    (GalleryError, 409, "the gallery cannot do this"),
    (DataError, 422, "the data are wrong"),
    (ConfigError, 422, "an option is wrong"),
    (ModelError, 422, "the model cannot take this"),
    (SlimReIDError, 422, "this cannot be done"),
)
"""The first kind that fits says status and title."""


def error_problem(error: SlimReIDError, instance: str, hide: Mapping[str, str] | None = None) -> Response:
    """The answer for an error of ours; `hide`: paths of this machine -> what to say in their place."""
    status, title = next((status, title) for kind, status, title in _KINDS if isinstance(error, kind))
    detail = str(error)
    for path, name in (hide or {}).items():
        detail = detail.replace(path, name)
    return problem(type(error).__name__, status, title, detail, instance)


def status_problem(
    status: int, detail: str, instance: str, errors: list[dict[str, str]] | None = None
) -> Response:
    """The answer for what is no error of ours: an unknown address, a field of the wrong type, ..."""
    title = HTTPStatus(status).phrase
    return problem(title.replace(" ", ""), status, title.lower(), detail, instance, errors)


def problem(
    name: str,
    status: int,
    title: str,
    detail: str,
    instance: str,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    """A problem document."""
    values: dict[str, object] = {
        "type": f"urn:slimreid:error:{name}",
        "name": name,
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
    }
    if errors is not None:
        values["errors"] = errors
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER
    return Response(json.dumps(values), status, headers, TYPE)
