"""Listens: a server that finishes what runs before it stops, and drops who dawdles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from slimreid.errors import ConfigError
from slimreid.serve.http.app import create_app
from slimreid.serve.service import Service

logger = logging.getLogger("slimreid.serve")

HEADER_SECONDS = 10.0
"""For the head of a request, from the moment the connection is made."""
_MOST_CONNECTIONS = 512
_BACKLOG = 256


@dataclass(frozen=True)
class Tls:
    """Certificate and key, as files; raises `ConfigError` where they cannot be used."""

    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        try:
            # A key that asks for a password would ask on the terminal: it is refused like a wrong one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{self.certificate} and {self.key}: no certificate with its key ({reason}); give two PEM "
                "files, the key without a password"
            ) from None


class PromptProtocol(H11Protocol):
    """Drops connections that send no whole head in time; uvicorn alone would wait for ever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        begun: object = self.cycle
        if begun is None and not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline of a request that will not be finished."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """Tells the service when it is asked to stop, so that event streams end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and Ctrl-C, without ending the process by the signal afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no more requests and finish those that run."""
        self.service.stopping.set()
        super().handle_exit(sig, frame)


def run_server(service: Service, tls: Tls | None = None) -> None:
    """Serve until asked to stop; raises `ConfigError` where the address is taken or not ours."""
    settings = service.settings
    config = uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=PromptProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        backlog=_BACKLOG,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(settings.request.seconds) + 5,
        h11_max_incomplete_event_size=32 * 1024,
        ssl_certfile=str(tls.certificate) if tls else None,
        ssl_keyfile=str(tls.key) if tls else None,
    )
    server = Server(config, service)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it cannot listen
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: it is taken, or no address of this machine; "
            "choose another --port or --host"
        ) from None
