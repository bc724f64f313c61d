"""How a service is set up."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.errors import ConfigError

Role = Literal["viewer", "editor", "admin"]
"""viewer: look and search; editor: also change the gallery; admin: also calibrate and erase for good."""
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class RequestLimits:
    """What one request may hold and take."""

    body: int = 32 * MEGABYTE
    """Bytes."""
    images: int = 64
    pixels: int = 16_000_000
    """Of one image."""
    total_pixels: int = 64_000_000
    """Of all images of a request together."""
    seconds: float = 30.0
    """From the first byte to the answer."""
    decode_seconds: float = 10.0
    """For the images of one sample."""
    decode_bytes: int = 2048 * MEGABYTE
    """Memory of a process that decodes."""


@dataclass(frozen=True)
class ServiceLimits:
    """What all requests together may hold and take."""

    requests: int = 64
    """Under way at once; event streams have their own number, the same."""
    queue: int = 128
    """Samples that wait or are being embedded."""
    bodies: int = 256 * MEGABYTE
    """Bytes of all bodies."""
    rate: float = 100.0
    """Requests per second and token, in the long run; 0 = no limit."""
    burst: int = 200
    """Requests that may come at once."""
    batch: int = 16
    """Samples that are embedded together at most."""
    wait: float = 0.004
    """Seconds that a sample waits for others to be embedded with."""


@dataclass(frozen=True)
class Settings:
    """A service: where it listens, where it keeps things, what it takes."""

    state: Path
    """Folder for tokens, jobs and images that were sent."""
    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    """Host names that requests may name besides the address it listens on."""
    secure: bool = False
    """Whether people reach it by https: cookies are sent by https alone then."""
    decoders: int = 2
    """Processes that decode images."""
    keep_images: bool = True
    """Whether images that are enrolled are kept, so that features can be computed anew."""
    request: RequestLimits = field(default_factory=RequestLimits)
    service: ServiceLimits = field(default_factory=ServiceLimits)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def tokens(self) -> Path:
        """The file with the tokens."""
        return self.state / "tokens.json"

    @property
    def jobs(self) -> Path:
        """The folder with the jobs."""
        return self.state / "jobs"

    @property
    def images(self) -> Path:
        """The folder with images that were sent and enrolled."""
        return self.state / "images"


def state_folder(gallery: str, state: Path | None = None) -> Path:
    """Where the service of a gallery keeps things: `state`, or the folder `GALLERY.service` beside its file.

    Raises `ConfigError` for a gallery that is not a file where no folder is given.
    """
    if state is not None:
        return state.absolute()
    if "://" in gallery:
        raise ConfigError(f"{gallery} is not a file: name a folder for tokens and jobs with --state")
    path = Path(gallery).absolute()
    return path.with_name(path.name + ".service")


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
