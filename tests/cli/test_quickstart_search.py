"""The search that the quickstart begins with."""

from __future__ import annotations

from PIL import Image

from slimreid.cli.quickstart_search import first_search
from slimreid.inference import shipped
from support.exported import write_exported_model
from support.runs import write_set


def test_it_searches_other_cameras_and_draws_what_it_found(tmp_path, monkeypatch):
    write_exported_model(tmp_path / "package" / "people-tiny")
    monkeypatch.setattr(shipped, "PRETRAINED", tmp_path / "package")
    manifest = write_set(tmp_path / "set", val=False)
    told = first_search(manifest, tmp_path / "search.png")
    who, _, found = told.partition("? ")
    names = found.partition(" among ")[0].split()
    assert who == "who is id9"
    assert len(names) == 5
    assert set(names) <= {"id9", "id10", "id11"}
    assert " among 6 (" in told, "3 identities in the other camera, twice each"
    with Image.open(tmp_path / "search.png") as picture:
        assert picture.width > picture.height
