"""A small service for tests: a gallery of colours, tokens of all roles, one process that decodes."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.open import open_store
from slimreid.serve.decoding.pool import DecodePool
from slimreid.serve.http.app import create_app
from slimreid.serve.service import Service
from slimreid.serve.settings import RequestLimits, ServiceLimits, Settings
from slimreid.serve.tokens import ROLES, TokenFile
from support.galleries import ColourModel, write_people

URL = "http://127.0.0.1:8000"
LIMITS = RequestLimits(
    body=2_000_000, images=16, pixels=1_000_000, total_pixels=2_000_000, decode_seconds=60.0
)
"""Small ones, but time enough for a process that decodes to start on a busy machine."""
PEOPLE = ("anna", "ben", "cleo")


class SharedPool(DecodePool):
    """Decoders that outlive a service."""

    def stop(self) -> None:
        """Go on for the next test."""


@cache
def shared_pool() -> SharedPool:
    """The decoder of all tests of a process; it ends with the process."""
    return SharedPool(1, LIMITS)


def picture(seed: int, size: tuple[int, int] = (16, 32), kind: str = "PNG") -> bytes:
    """The content of a small image file (width, height)."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(buffer, kind)
    return buffer.getvalue()


def make_gallery(folder: Path) -> Path:
    """A gallery of three people with two images each in rgb and tir; a copy of one made once."""
    place = folder / "people.gallery"
    with Gallery.create(place, ColourModel(), by="maker") as gallery:
        gallery.enrol(write_people(folder / "images", PEOPLE), show_progress=False)
    return place


@dataclass(frozen=True)
class Served:
    """A service that answers within this process."""

    client: TestClient
    service: Service
    tokens: dict[str, str]
    """Role -> token; empty where none is needed."""

    def headers(self, role: str) -> dict[str, str]:
        """What somebody of a role sends."""
        return {"Authorization": f"Bearer {self.tokens[role]}"}

    def as_(self, role: str) -> TestClient:
        """Everything from now on is asked by somebody of this role."""
        self.client.headers.update(self.headers(role))
        return self.client


@contextmanager
def serve(
    place: Path,
    *,
    with_tokens: bool = False,
    limits: ServiceLimits | None = None,
    pool: DecodePool | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """Serve a gallery; requests come from this machine."""
    state = place.with_name(place.name + ".service")
    settings = {"request": LIMITS, "service": limits or ServiceLimits(rate=0), **settings}
    made = Settings(state, **settings)
    tokens = {}
    if with_tokens:
        file = TokenFile(made.tokens)
        tokens = {role: file.add(role, role) for role in ROLES if role not in {t.name for t in file.tokens()}}
    service = Service(open_store(place), ColourModel(), made, pool or shared_pool())
    with TestClient(create_app(service), URL, raise_server_exceptions=False) as client:
        yield Served(client, service, tokens)


def copy_gallery(made: Path, folder: Path) -> Path:
    """A gallery of one's own."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(made, folder / made.name))


def files_of(images: dict[str, bytes]) -> dict[str, tuple[str, bytes]]:
    """Images as httpx sends them."""
    return {name: (f"{name}.png", content) for name, content in images.items()}


def with_limits(**changes: Any) -> RequestLimits:
    return replace(LIMITS, **changes)
