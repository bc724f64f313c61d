"""research/adapt.py: ways to adapt, on a small set whose cameras have looks of their own."""

from __future__ import annotations

import csv
import json

import adapt
import numpy as np
import pytest

from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load_trained
from support.models import write_random_model
from support.runs import write_set


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Twelve test identities."""
    first = write_set(tmp_path_factory.mktemp("site"), val=False)
    with first.open(newline="") as file:
        head, *rows = csv.reader(file)
    kept = [row for row in rows if row[0] != "gallery"]
    whole = first.with_name("whole.csv")
    with whole.open("w", newline="") as file:
        csv.writer(file).writerows(
            [head, *([side, *row[1:]] for row in kept for side in ("query", "gallery"))]
        )
    return whole


@pytest.fixture(scope="module")
def run(tmp_path_factory, site):
    folder = tmp_path_factory.mktemp("run")
    write_random_model(folder, site, "model.neck_feature=after", "model.reduction=none", "model.fusion=none")
    return folder


def test_all_methods_are_compared_on_people_that_none_was_adapted_with(run, site, tmp_path, capsys):
    words = [str(run), str(site), "--home", str(site), "--images", "2", "4", "--out", str(tmp_path)]
    assert adapt.main([*words, "--name", "x"]) == 0
    found = json.loads((tmp_path / "x.json").read_text())
    (measured,) = found["sites"]
    assert (measured["fitted"], measured["searched"]) == (5, 4)
    assert list(measured["methods"]) == ["none", "2", "4"]
    assert list(measured["methods"]["4"]) == ["global", "camera", "shrunk", "bnneck"]
    none = measured["methods"]["none"]
    for figures in measured["methods"]["4"].values():
        assert figures["gain"] == pytest.approx(figures["map"] - none["map"], abs=1e-6)
        assert 0 <= figures["false_match_rate"] <= 1
    assert "shrunk" in capsys.readouterr().out


def test_images_are_drawn_per_camera_and_identity(site, run):
    samples = open_data(load_trained(run), site).manifest.samples
    first, second = adapt.halves(samples, 0)
    assert not first & second
    rows = adapt.fit_rows(samples, first, 3, 0)
    shown = [samples[row] for row in rows]
    assert {sample.identity for sample in shown} <= first
    assert [sum(s.camera == camera for s in shown) for camera in ("1", "2")] == [3, 3]
    assert len({s.images["rgb"].path for s in shown}) == 6, "a query that is in the gallery too counts once"


def test_new_statistics_are_those_of_the_rows(run, site):
    loaded = load_trained(run)
    data = open_data(loaded, site)
    rows = adapt.fit_rows(data.manifest.samples, {s.identity for s in data.manifest.samples}, 30, 0)
    other = adapt.with_new_statistics(loaded, data, rows)
    chosen = data.manifest.with_samples([data.manifest.samples[row] for row in rows])
    before = adapt.replace(loaded, card=loaded.card, model=adapt.deepcopy(loaded.model))
    before.model.options = adapt.replace(before.model.options, neck_feature="before", missing="zeros")
    (plain,) = extract_features(
        before, adapt.replace(data, manifest=chosen), options=Extraction(cameras="other", workers=0)
    ).values()
    neck = next(iter(other.model.heads.values())).neck
    np.testing.assert_allclose(neck.running_mean.numpy(), plain.branches["original"].mean(axis=0), atol=1e-4)
    old = next(iter(loaded.model.heads.values())).neck
    assert not np.allclose(old.running_mean.numpy(), neck.running_mean.numpy()), (
        "the run itself is not touched"
    )
