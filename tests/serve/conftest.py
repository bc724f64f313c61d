from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.services import Served, copy_gallery, make_gallery, serve


@pytest.fixture(scope="session")
def made_gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery that nobody changes."""
    return make_gallery(tmp_path_factory.mktemp("people"))


@pytest.fixture
def place(made_gallery: Path, tmp_path: Path) -> Path:
    """A gallery of a test's own."""
    return copy_gallery(made_gallery, tmp_path / "gallery")


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    """A service that needs no token."""
    with serve(place) as found:
        yield found
