import re

import pytest
from PIL import Image

from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError
from slimreid.visual.datasets.views import dataset_rows, save_sheet, sheet_page


def test_rows_show_different_cameras_and_every_modality(small_set):
    rows = dataset_rows(read_manifest(small_set), identities=3, images=2)
    assert len(rows) == 3
    for row in rows:
        assert row.captions == ["camera 1", "camera 2"]
        assert all(set(cell) == {"rgb", "nir", "tir"} for cell in row.cells)
    assert [r.label for r in dataset_rows(read_manifest(small_set), "query", 9, 9)] == ["id9", "id10", "id11"]
    assert len(dataset_rows(read_manifest(small_set), "query", 1, 9)[0].cells) == 4, "no image twice"


def test_sheets_as_picture_and_page(small_set, tmp_path):
    manifest = read_manifest(small_set)
    rows = dataset_rows(manifest, identities=2, images=2)
    save_sheet(rows, manifest.modalities, tmp_path / "s.png", "title")
    assert Image.open(tmp_path / "s.png").width > 200
    save_sheet(rows, manifest.modalities, tmp_path / "s.html", "<title>", "note & more")
    page = (tmp_path / "s.html").read_text()
    assert page.count("<img ") == 2 * 2 * 3
    assert "&lt;title&gt;" in page
    assert "note &amp; more" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page), "nothing from outside"
    with pytest.raises(ConfigError, match=r"\.png, \.jpg or \.html"):
        save_sheet(rows, manifest.modalities, tmp_path / "s.bmp", "title")
    with pytest.raises(DataError, match="no rows of split val"):
        dataset_rows(manifest, "val")


@pytest.mark.browser
def test_page_in_a_real_browser(small_set, tmp_path, browser_page):
    manifest = read_manifest(small_set)
    rows = dataset_rows(manifest, identities=2, images=2)
    rows[0].cells[0] = {"rgb": rows[0].cells[0]["rgb"]}  # the others absent
    path = tmp_path / "s.html"
    path.write_text(sheet_page(rows, manifest.modalities, "A small set"), encoding="utf-8")
    page, complaints = browser_page
    page.goto(path.as_uri())
    assert page.title() == "A small set"
    assert page.locator("section").count() == 2
    assert page.locator(".absent").count() == 2
    loaded = page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert loaded
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "fits a phone"
    page.screenshot(path=str(tmp_path / "s.png"))
    assert complaints == []
