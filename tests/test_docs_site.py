"""The documentation site builds without warnings, holds every page and works without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//[^\">\s]+")
"""A resource that the browser would fetch from another machine; links that a reader clicks are fine."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)  # `strict` is in the file: a warning raises
    return folder


def test_every_page_is_in_the_site(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file(), page.name


def test_nothing_is_loaded_from_elsewhere(site):
    found = {
        (page.name, match)
        for page in site.rglob("*.html")
        for match in LOADED.findall(page.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in match
    }
    assert not found
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", styles)


def test_the_check_for_resources_finds_them():
    assert LOADED.search('<script src="https://unpkg.com/x"></script>')
    assert LOADED.search('<link rel="stylesheet" href=//fonts.example/css>')
    assert not LOADED.search('<a href="https://github.com/x">x</a> <script src="assets/x.js"></script>')


@pytest.mark.parametrize(
    "name", ["slimreid.load", "slimreid.config.Config", "slimreid.evaluation.evaluate_retrieval"]
)
def test_the_api_page_describes(site, name):
    assert f'id="{name}"' in (site / "api.html").read_text(encoding="utf-8")


@pytest.mark.browser
def test_search_works_from_disk(site, browser_page):
    page, complaints = browser_page
    page.set_viewport_size({"width": 1400, "height": 900})
    outside = []
    page.on(
        "request", lambda r: None if r.url.startswith(("file:", "data:", "about:")) else outside.append(r.url)
    )
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").press_sequentially(
        "bootstrap"
    )  # the search itself complains of a query that ends in a hyphen
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    links = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
    assert any("evaluation.html" in link for link in links)
    assert not complaints
    assert not outside
