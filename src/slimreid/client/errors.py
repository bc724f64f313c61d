"""Problems that a service answers with, as the errors that a file would raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDError
from slimreid.gallery import errors as gallery


class ServerError(SlimReIDError):
    """The service refuses; `name` and `status` say why."""

    def __init__(self, message: str, name: str = "ServerError", status: int = 0) -> None:
        super().__init__(message)
        self.name, self.status = name, status


class UnreachableError(ServerError):
    """Nobody answers, or not as a service does."""


_KNOWN: Mapping[str, type[SlimReIDError]] = {
    kind.__name__: kind
    for kind in (
        DataError,
        ConfigError,
        ModelError,
        gallery.GalleryError,
        gallery.GalleryBusyError,
        gallery.GalleryFullError,
        gallery.GalleryDamagedError,
        gallery.OtherModelError,
    )
}


def problem_error(problem: Mapping[str, Any], status: int) -> SlimReIDError:
    """The error that a problem document names."""
    name, detail = str(problem.get("name", "")), str(problem.get("detail", "no reason was given"))
    kind = _KNOWN.get(name)
    return kind(detail) if kind is not None else ServerError(detail, name or "ServerError", status)
