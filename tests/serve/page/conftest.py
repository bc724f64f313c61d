from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from slimreid.gallery.gallery import Gallery
from slimreid.inference.loaded_model import LoadedModel
from slimreid.serve.settings import state_folder
from slimreid.serve.tokens import TokenFile
from support.browser import open_chromium, watch
from support.models import write_random_model
from support.page_service import fill, serve
from support.page_visit import Visit
from support.runs import write_set

WIDE = {"width": 1300, "height": 900}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_set(folder / "set")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    (folder / "model").mkdir()
    return write_random_model(folder / "model", folder / "set" / "manifest.csv")


@pytest.fixture(scope="module")
def url(folder: Path, model: LoadedModel) -> Iterator[str]:
    """A service without tokens, with a calibrated gallery of five identities."""
    fill(folder / "station.gallery", model, folder / "set" / "manifest.csv")
    with serve(folder / "station.gallery", model) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def guarded(folder: Path, model: LoadedModel) -> Iterator[tuple[str, dict[str, str]]]:
    """A service of an empty gallery that asks for tokens; role -> token."""
    place = folder / "guarded.gallery"
    Gallery.create(place, model).close()
    tokens = TokenFile(state_folder(str(place)) / "tokens.json")
    secrets = {role: tokens.add(f"{role} of the tests", role) for role in ("viewer", "admin")}
    with serve(place, model) as address:
        yield address, secrets


@pytest.fixture
def visit(browser: Any, folder: Path, url: str) -> Iterator[Callable[..., Any]]:
    """Opens the page in a context of its own: `with visit(...) as it`."""

    @contextmanager
    def opened(address: str = "", *, allowed: str | None = None, **options: Any) -> Iterator[Visit]:
        options = {"viewport": WIDE, "locale": "en-GB", "reduced_motion": "reduce", **options}
        context = browser.new_context(**options)
        context.set_default_timeout(10_000)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        it = Visit(page, folder, watch(page), address or url)
        page.goto(it.url)
        page.wait_for_selector("main:not(:has(.working)) h1")
        yield it
        own = urlsplit(it.url).netloc
        assert {urlsplit(address).netloc for address in asked if not address.startswith("blob:")} == {own}
        assert [text for text in it.complaints if allowed is None or allowed not in text] == []
        context.close()

    return opened
