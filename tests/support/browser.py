"""Headless Chromium for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support import skips

PHONE = {"width": 390, "height": 844}
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


@contextmanager
def open_chromium() -> Iterator[Any]:
    """A browser; skips the test where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip(skips.NO_CHROMIUM)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


def watch(page: Any) -> list[str]:
    """What a page complains about from now on."""
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints
