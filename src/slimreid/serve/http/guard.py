"""What every request passes before a route sees it: limits, host and origin, who asks, headers of safety."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slimreid.errors import SlimReIDError
from slimreid.serve.access import Who, require_role
from slimreid.serve.errors import BusyError, NotAllowedError, NotLoggedInError, TooLargeError, TooSlowError
from slimreid.serve.http.problems import error_problem, status_problem
from slimreid.serve.service import Service

logger = logging.getLogger("slimreid.serve")

API = "/v1/"
WATCHED = ("/v1/health", "/v1/ready")
"""Addresses that answer anybody, also when the service is busy."""
PUBLIC = (*WATCHED, "/v1/session", "/v1/openapi.json")
"""Addresses that need no token."""
EVENTS = "/events"
_SMALL_BODY = 1 << 16
"""Bytes that somebody without token may send."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware around the whole service."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self._bodies = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, instance = time.monotonic(), secrets.token_hex(8)
        answer = _Answer(send, self.service.settings.secure, scope["path"].startswith(API))
        scope.setdefault("state", {})["instance"] = instance
        try:
            await self._pass(scope, receive, answer)
        except SlimReIDError as error:
            await answer.refuse(scope, receive, error_problem(error, instance, self.service.hidden))
        except TimeoutError:
            text = f"not done within {self.service.settings.request.seconds:g} seconds; try again later"
            await answer.refuse(scope, receive, error_problem(BusyError(text), instance))
        except Exception:
            logger.exception("request %s %s %s failed", instance, scope["method"], scope["path"])
            text = "this is an error in the service, not in your request; its log has more"
            await answer.refuse(scope, receive, status_problem(500, text, instance))
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.service.metrics.count_request(
                scope["method"], route, answer.status, time.monotonic() - began
            )
            if answer.status in (429, 503):
                self.service.metrics.refused += 1

    async def _pass(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        who = self._who(scope, headers)
        scope["state"]["who"] = who
        is_stream = scope["path"].endswith(EVENTS)
        is_public = scope["path"] in PUBLIC
        with self._place(is_stream, is_public):
            if is_stream:
                await self.app(scope, receive, answer)
                return
            limits = self.service.settings.request
            most = limits.body if who is not None else _SMALL_BODY
            with anyio.fail_after(limits.seconds):
                body = await self._read(headers, receive, most)
                scope["state"]["whole"] = True
                try:
                    await self.app(scope, _replay(body, receive), answer)
                finally:
                    self._bodies -= len(body)

    def _who(self, scope: Scope, headers: Headers) -> Who | None:
        path = scope["path"]
        if not path.startswith(API) or path in WATCHED:
            return None
        client = scope["client"][0] if scope.get("client") else ""
        try:
            # A route that forgets to ask for a role is closed all the same.
            return require_role(self.service.access.who(scope["method"], headers, client), "viewer")
        except NotLoggedInError:
            if path not in PUBLIC:
                raise
            return None

    def _check_host(self, headers: Headers) -> None:
        """A page of another name that resolves to this machine (DNS rebinding) is not one of ours."""
        names = self.service.host_names
        name = ""
        with suppress(ValueError):
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if "*" not in names and name not in names:
            raise NotAllowedError(f"this service is not called '{name[:100]}'; start it with --name")

    @contextmanager
    def _place(self, is_stream: bool, is_public: bool) -> Iterator[None]:
        """A place among the requests under way; raises `BusyError` where all are taken."""
        most, metrics = self.service.settings.service.requests, self.service.metrics
        name = "streams" if is_stream else "requests"
        # Whoever watches the service must be answered also when it is busy.
        if getattr(metrics, name) >= (2 * most if is_public else most):
            raise BusyError(f"{most} requests are under way; try again later")
        setattr(metrics, name, getattr(metrics, name) + 1)
        try:
            yield
        finally:
            setattr(metrics, name, getattr(metrics, name) - 1)

    async def _read(self, headers: Headers, receive: Receive, most: int) -> bytes:
        """The whole body, kept within all limits while it arrives."""
        given = headers.get("content-length", "0")
        if given.isdecimal() and len(given) < 20 and int(given) > most:
            raise TooLargeError(f"a body of {int(given):,} bytes is more than the {most:,} allowed")
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                with anyio.fail_after(self.service.settings.request.seconds / 2):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise TooSlowError("the request was incomplete")
                part = message.get("body", b"")
                size += len(part)
                self._bodies += len(part)
                parts.append(part)
                if size > most:
                    raise TooLargeError(f"the body is more than the {most:,} bytes allowed")
                if self._bodies > self.service.settings.service.bodies:
                    raise BusyError("too much is being sent at once; try again later")
                if not message.get("more_body"):
                    return b"".join(parts)
        except BaseException as error:
            self._bodies -= size
            if isinstance(error, TimeoutError):
                raise TooSlowError("the request was sent too slowly") from None
            raise


class _Answer:
    """The way back: adds the headers of safety, remembers the status."""

    def __init__(self, send: Send, secure: bool, is_api: bool) -> None:
        self._send = send
        self.status = 0
        self._extra = dict(_HEADERS)
        self._extra["Cache-Control"] = "no-store" if is_api else "no-cache"
        if secure:
            self._extra["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._extra.items():
                headers[name] = value
        await self._send(message)

    async def refuse(self, scope: Scope, receive: Receive, response: ASGIApp) -> None:
        """Answer with a problem, unless an answer was begun."""
        if not self.status:
            if not scope["state"].get("whole"):
                self._extra["Connection"] = "close"  # the rest of the request is not waited for
            await response(scope, receive, self)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
