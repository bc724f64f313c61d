"""`slimreid serve`: a page and an HTTP interface for a gallery; `slimreid serve token`: who may use them."""

from __future__ import annotations

from slimreid.cli.console import console, say, table
from slimreid.cli.options.serving import (
    ServeOptions,
    TokenAddOptions,
    TokenListOptions,
    TokenRevokeOptions,
)
from slimreid.extras import explain_missing
from slimreid.serve.settings import MEGABYTE, RequestLimits, ServiceLimits, Settings, state_folder
from slimreid.serve.tokens import TokenFile
from slimreid.times import show_time


def serve(options: ServeOptions) -> None:
    """Serve a gallery until asked to stop."""
    with explain_missing():
        from slimreid.serve.http.server import Tls, run_server
        from slimreid.serve.service import open_service
    settings = _settings(options)
    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = Tls(options.tls_cert, options.tls_key)
    service = open_service(options.gallery, options.model, settings)
    scheme = "https" if tls else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    say(f"{service.store.count():,} rows at {scheme}://{host}:{options.port} (Ctrl-C stops)")
    if not service.access.login:
        say("no token is needed from this machine; 'slimreid serve token add' makes one")
    run_server(service, tls)


def _settings(options: ServeOptions) -> Settings:
    return Settings(
        state=state_folder(options.gallery, options.state),
        host=options.host,
        port=options.port,
        names=tuple(options.name),
        secure=options.https or options.tls_cert is not None,
        decoders=options.decoders,
        keep_images=not options.forget_images,
        request=RequestLimits(
            body=options.max_body * MEGABYTE,
            images=options.max_images,
            pixels=options.max_pixels * 1_000_000,
            total_pixels=4 * options.max_pixels * 1_000_000,
            seconds=options.timeout,
        ),
        service=ServiceLimits(
            queue=options.queue,
            bodies=8 * options.max_body * MEGABYTE,
            rate=options.rate_limit,
            burst=max(1, int(2 * options.rate_limit)),
            batch=options.batch,
        ),
    )


def add(options: TokenAddOptions) -> None:
    """Make a token and show it, this once."""
    tokens = _tokens(options.gallery, options)
    name = options.name or options.role
    say(tokens.add(name, options.role))
    say(f"this is the token '{name}' ({options.role}); it is kept nowhere and not shown again")


def list_(options: TokenListOptions) -> None:
    """List the tokens, without their secrets."""
    tokens = _tokens(options.gallery, options).tokens()
    console.print(table(["name", "role", "made"], [[t.name, t.role, show_time(t.created)] for t in tokens]))


def revoke(options: TokenRevokeOptions) -> None:
    """Make a token invalid, also for a service that runs."""
    _tokens(options.gallery, options).revoke(options.name)
    say(f"the token '{options.name}' is no longer valid")


def _tokens(gallery: str, options: TokenAddOptions | TokenListOptions | TokenRevokeOptions) -> TokenFile:
    return TokenFile(Settings(state_folder(gallery, options.state)).tokens)
