"""Options of `slimreid serve` and `slimreid serve token ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import NOTE, ModelOption
from slimreid.cli.options.gallery import OF_GALLERY
from slimreid.config.values import check_least
from slimreid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServedOptions:
    """Options of all commands about a service."""

    gallery: str
    """File of the gallery, or milvus://host:port/NAME."""
    state: Path | None = None
    """Folder for tokens, jobs and images that were sent; default: GALLERY.service beside the file."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServedOptions, ModelOption):
    """Serve a gallery: a page to search it, an HTTP interface for programs. See also 'serve token'."""

    model: Path | None = field(default=None, metadata={NOTE: OF_GALLERY})
    host: str = "127.0.0.1"
    """Address to listen on; any but the loopback needs tokens ('slimreid serve token add')."""
    port: int = 8000
    """Port to listen on."""
    name: list[str] = field(default_factory=list)
    """Host names under which the service is reached, e.g. behind a proxy."""
    https: bool = False
    """A proxy serves the page by https: send cookies over https only."""
    tls_cert: Path | None = None
    """Certificate file (PEM), to serve https without a proxy."""
    tls_key: Path | None = None
    """Key file (PEM) of the certificate."""
    queue: int = 128
    """Most samples waiting to be embedded; further requests are refused (503)."""
    batch: int = 16
    """Most samples embedded together."""
    max_body: int = 32
    """Most megabytes in one request."""
    max_images: int = 64
    """Most images in one request."""
    max_pixels: int = 16
    """Most megapixels in one image."""
    timeout: float = 30.0
    """Seconds after which a request fails."""
    rate_limit: float = 100.0
    """Requests per second and token, on average; 0 = no limit."""
    decoders: int = 2
    """Number of processes that decode images."""
    forget_images: bool = False
    """Do not keep enrolled images; features can then not be recomputed with another model."""

    def __post_init__(self) -> None:
        check_least(self, 1, "queue", "batch", "max_body", "max_images", "max_pixels", "decoders")
        check_least(self, 0, "rate_limit", "port")
        if self.port > 65535:
            raise ConfigError(f"--port must be at most 65535, not {self.port}")
        if self.timeout < 1:
            raise ConfigError(f"--timeout must be at least 1 second, not {self.timeout:g}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key go together")


@dataclass(frozen=True, kw_only=True)
class TokenAddOptions(ServedOptions):
    """Make a token and show it; it is shown only once."""

    role: Literal["viewer", "editor", "admin"] = field(metadata={"required": True})
    """viewer: search; editor: also change the gallery; admin: also calibrate and erase."""
    name: str | None = None
    """Name of the token, for the log; default: the role."""


@dataclass(frozen=True, kw_only=True)
class TokenListOptions(ServedOptions):
    """List the tokens."""


@dataclass(frozen=True, kw_only=True)
class TokenRevokeOptions(ServedOptions):
    """Make a token invalid."""

    name: str
    """Name of the token."""
