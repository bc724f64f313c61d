"""research/ship.py: from a run to a folder of the package, and its card."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ship
import ship_card
from look_results import LookFigures, LookResult, write_result

import slimreid
from slimreid.inference import load as loading
from support.models import SLIM, write_random_model
from support.runs import write_set


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A checkout with a model in its package, and the run it was made of."""
    folder = tmp_path_factory.mktemp("ship")
    manifest = write_set(folder / "set")
    loaded = write_random_model(folder / "run", manifest, *SLIM, modalities=("rgb", "tir"))
    words = [str(loaded.path), "--name", "tiny", "--root", str(folder), "--max-loss", "100"]
    assert ship.main(words) == 0
    return folder


def test_the_model_loads_by_name_and_gives_the_features_of_the_run(packed, monkeypatch):
    monkeypatch.setattr(loading, "PRETRAINED", packed / "src" / "slimreid" / "pretrained")
    image = {"rgb": packed / "set" / "rgb" / "9_1_0.png"}
    expected = slimreid.load(packed / "run").embed(image)
    for name, least in (("tiny", 0.9999), ("tiny-int8", 0.95)):
        found = slimreid.load(name)
        assert float((found.embed(image) * expected).sum()) > least
        assert found.identities[0] == "market1501/id0", "no other data has such an identity"
        assert (found.config.data.manifest, found.config.train.teacher) == ("", None)


def test_no_place_of_this_machine_is_in_the_package(packed):
    for path in (packed / "src").rglob("*.json"):
        assert str(packed) not in path.read_text(encoding="utf-8")


def test_every_subset_is_measured_in_both_precisions(packed):
    found = json.loads((packed / "research" / "results" / "tiny" / "subsets.json").read_text())
    assert found["packed"]["bytes"] < ship.MOST_BYTES
    assert list(found["subsets"]) == ["float32", "int8"]
    for figures in found["subsets"].values():
        assert list(figures) == ["rgb", "tir", "rgb+tir"]
        assert all(0 < f["low"] <= f["map"] <= f["high"] <= 1 for f in figures.values())


def test_the_card_has_the_figures_of_its_files(packed):
    values = np.full(12, 0.5)
    looks = {
        "clean": LookFigures(0.8, 0.75, 0.85, 0.9, 0.01, 0.9, values),
        "dark": LookFigures(0.6, 0.55, 0.65, 0.7, 0.043, 0.6, values),
    }
    path = packed / "looks.json"
    write_result(path, LookResult("tiny", {}, "key", "camera", tuple("abcdefghijkl"), looks))
    words = ["--card", "--name", "tiny", "--root", str(packed), "--looks", str(path)]
    assert ship.main(words) == 0
    text = (packed / "docs" / "tiny.md").read_text(encoding="utf-8")
    assert text == (packed / "src" / "slimreid" / "pretrained" / "tiny" / "README.md").read_text(
        encoding="utf-8"
    )
    assert "| dark | 60.0 (55.0–65.0) | 70.0 | 75% | 4.3% |" in text
    assert "| rgb+tir | " in text
    assert text.index("## Any subset") < text.index("## Other looks") < text.index("## Limits")
    figures = json.loads((packed / "research" / "results" / "tiny" / "subsets.json").read_text())
    rgb = figures["subsets"]["float32"]["rgb"]
    assert f"| rgb | {100 * rgb['map']:.1f} ({100 * rgb['low']:.1f}–{100 * rgb['high']:.1f})" in text


def test_without_figures_the_card_has_no_empty_sections():
    text = ship_card.card(None, [])
    assert text == ship_card.TEXT.read_text(encoding="utf-8")
    assert "must it not be used for" in text


def test_something_to_ship_must_be_named(capsys):
    with pytest.raises(SystemExit):
        ship.main(["--name", "tiny"])
    assert "give the run to ship, or --card" in capsys.readouterr().err
