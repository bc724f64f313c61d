"""Requests with retries, by the standard library alone; problems as the errors that a file would raise."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDError
from slimreid.gallery import errors as gallery

JSON = "application/json"
_BUSY = (429, 503)
_LONGEST_WAIT = 10.0
_LARGEST_ANSWER = 1 << 30


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


@dataclass(frozen=True)
class Part:
    """A part of a form: a field, or a file where it has content in bytes."""

    name: str
    content: str | bytes


class Transport:
    """One connection to one service; not to be shared by threads."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        """Raises `ConfigError` for an address that is none."""
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname or found.query or found.username:
            raise ConfigError(f"'{url}' is not the address of a service; write http://HOST:PORT")
        self.url = url.rstrip("/")
        self._token, self._timeout, self._retries = token, timeout, retries
        self._prefix = found.path.rstrip("/")
        port = found.port or (443 if found.scheme == "https" else 80)
        self._connection: http.client.HTTPConnection
        if found.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                found.hostname, port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(found.hostname, port, timeout=timeout)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def get(self, path: str) -> Any:
        """What the service answers to GET, as JSON."""
        return self._parsed(self._ask(path))

    def get_bytes(self, path: str) -> bytes:
        """What the service answers to GET, as it is."""
        return self._ask(path)

    def send(self, path: str, values: Mapping[str, Any], *, repeatable: bool = False) -> Any:
        """Send JSON. `repeatable`: doing it twice does no harm, so it is sent again where nobody answered."""
        return self._parsed(self._ask(path, json.dumps(values).encode(), JSON, repeatable=repeatable))

    def send_form(self, path: str, parts: Sequence[Part]) -> Any:
        """Send files and fields; all of these requests can be sent twice without harm."""
        return self._parsed(self._ask(path, *encode_form(parts)))

    def _parsed(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError:
            raise UnreachableError(f"{self.url}: the server there is not a SlimReID service") from None

    def _ask(self, path: str, body: bytes | None = None, kind: str = "", *, repeatable: bool = True) -> bytes:
        method = "GET" if body is None else "POST"
        headers = {"Accept": JSON} | ({"Content-Type": kind} if kind else {})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                self._connection.request(method, self._prefix + path, body, headers)
                response = self._connection.getresponse()
                content = response.read(_LARGEST_ANSWER)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if is_last or not (repeatable or isinstance(error, ConnectionRefusedError)):
                    reason = str(error) or type(error).__name__
                    raise UnreachableError(f"{self.url}: no answer ({reason}); is the service up?") from None
                time.sleep(_wait(attempt))
                continue
            if response.status in _BUSY and not is_last:
                time.sleep(_wait(attempt, response.headers.get("Retry-After")))
                continue
            if response.status >= 400:
                raise problem_error(_problem(content), response.status)
            return content
        raise AssertionError("the last attempt ends the loop")


def _wait(attempt: int, asked: str | None = None) -> float:
    """Seconds before the next attempt: longer each time, never all clients at once."""
    least = float(asked) if asked is not None and asked.isdecimal() else 0.1
    longest: float = min(_LONGEST_WAIT, least * 2**attempt)
    return longest * random.uniform(0.5, 1.0)


def _problem(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": content[:200].decode("utf-8", "replace")}


def encode_form(parts: Sequence[Part]) -> tuple[bytes, str]:
    """Body and type of a `multipart/form-data` request."""
    boundary = secrets.token_hex(16)
    lines: list[bytes] = []
    for part in parts:
        head = f'Content-Disposition: form-data; name="{part.name}"'
        content = part.content
        if isinstance(content, bytes):
            head += f'; filename="{part.name}"\r\nContent-Type: application/octet-stream'
        else:
            content = content.encode()
        lines += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), content, b"\r\n"]
    return b"".join([*lines, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"
