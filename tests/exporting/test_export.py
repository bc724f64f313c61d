"""Exporting a model: what is written, what is refused, and that nothing is left behind."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import slimreid
from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.exporting import check as checks
from slimreid.exporting import export as exporting
from slimreid.exporting.agreement import BATCHES, engine_runner, torch_runner
from slimreid.exporting.graphs import read_graph
from slimreid.exporting.int8_layers import MOST_ERROR, choose_layers, outlier_layers
from slimreid.exporting.readme import readme
from slimreid.exporting.samples import check_samples, draw_identities
from slimreid.inference.exported_card import read_exported
from slimreid.inference.onnx_engine import OnnxEngine
from slimreid.serve.views import kept_patches


@pytest.fixture
def run(exported: Path) -> Path:
    return exported.parent / "run"


def test_what_is_written(exported, run):
    loaded, card = slimreid.load(run), read_exported(exported)
    assert card.fingerprint == loaded.fingerprint
    assert card.feature_fingerprint == loaded.feature_fingerprint, "float32 features may be compared"
    assert card.model == loaded.card
    assert card.sizes == loaded.model.sizes
    assert [card.similarities[kind].blocks for kind in card.sizes] == [
        loaded.similarity(kind).blocks for kind in card.sizes
    ]
    assert list(card.graphs) == [("rgb",), ("tir",), ("rgb", "tir")]
    assert card.stages == ("kept_1",)
    assert card.camera_input
    text = (exported / "README.md").read_text(encoding="utf-8")
    assert "12 queries among 12 samples" in text
    assert "32×16" in text
    assert "failed" not in text


def test_the_check_is_on_real_samples_of_every_subset(exported):
    check = read_exported(exported).check
    assert "set (query and gallery)" in check["source"]
    assert [each["subset"] for each in check["agreements"]] == [["rgb"], ["tir"], ["rgb", "tir"]]
    assert not any(each["noise"] for each in check["agreements"])
    assert check["cosine"] > 0.99999
    accuracy = check["accuracy"]
    assert accuracy["map"][0] == pytest.approx(accuracy["map"][1], abs=1e-6)
    assert accuracy["difference"]["low"] <= 0 <= accuracy["difference"]["high"]
    assert check["faults"] == []


def test_the_card_tells_of_near_ties(exported):
    card = read_exported(exported)
    first, *others = card.check["agreements"]
    tied = [first | {"ties": 2, "cosine_as_is": 0.9971}, *others]
    text = readme(replace(card, check={**card.check, "agreements": tied}))
    assert "In 2 of the samples two patches score alike" in text
    assert "cosine 0.997100" in text
    assert "score alike" not in readme(card)


def test_graphs_share_one_file_of_weights(exported, run):
    graphs = sum(path.stat().st_size for path in exported.glob("*.onnx"))
    weights = (exported / "weights.bin").stat().st_size
    model = (run / "model.safetensors").stat().st_size
    assert 0.7 * model < weights < 1.5 * model, "once, not three times"
    assert graphs < model


@pytest.mark.usefixtures("ready_graphs")
def test_int8_has_a_quarter_of_the_weights_and_other_features(exported, run, tmp_path):
    card = slimreid.export(run, tmp_path / "int8", precision="int8", max_loss=100)
    assert card.precision == "int8"
    assert card.float_layers == ()
    assert card.feature_fingerprint != read_exported(exported).feature_fingerprint
    assert sorted(p.name for p in (tmp_path / "int8").iterdir()) == sorted(p.name for p in exported.iterdir())
    sizes = [(folder / "weights.bin").stat().st_size for folder in (tmp_path / "int8", exported)]
    assert sizes[0] < 0.45 * sizes[1], "embeddings stay float32, and are much of so small a model"
    assert 0.9 < card.check["cosine"] < 1
    engine = OnnxEngine(tmp_path / "int8")
    images = {"rgb": np.zeros((3, 3, 32, 16), np.float32)}
    assert engine.features(images)["both"].shape == (3, card.sizes["both"])


@pytest.mark.usefixtures("ready_graphs")
@pytest.mark.parametrize(("given", "layers"), [([3.0, 2.0, 0.3], 2), ([0.45, 0.39], 1)])
def test_layers_stay_float32_until_the_loss_is_small_enough(run, tmp_path, monkeypatch, given, layers):
    losses = iter(given)
    results = exporting.compare_results

    def with_loss(first, second, samples):
        found = results(first, second, samples)
        return replace(found, map=(0.5, 0.5 - next(losses) / 100))

    monkeypatch.setattr(exporting, "compare_results", with_loss)
    card = slimreid.export(run, tmp_path / "int8", precision="int8")
    assert len(card.float_layers) == layers
    graph = read_graph(tmp_path / "int8", "graph-rt.onnx")
    names = {tensor.name for tensor in graph.graph.initializer}
    assert {f"{layer}.weight" for layer in card.float_layers} <= names
    assert card.float_layers[0] in (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("ready_graphs")
def test_a_failed_check_leaves_nothing_behind_unless_forced(run, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "LEAST_COSINE", 1.1)
    with pytest.raises(ModelError, match=r"fails its check: features differ.*--force"):
        slimreid.export(run, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    card = slimreid.export(run, tmp_path / "out", force=True)
    assert "features differ" in card.check["faults"][0]
    assert "**The check failed:** features differ" in (tmp_path / "out" / "README.md").read_text(
        encoding="utf-8"
    )
    assert read_exported(tmp_path / "out").check["faults"] == card.check["faults"]


@pytest.mark.usefixtures("ready_graphs")
def test_int8_that_loses_too_much_leaves_nothing_behind(run, tmp_path, monkeypatch):
    results = exporting.compare_results

    def lossy(first, second, samples):
        return replace(results(first, second, samples), map=(0.5, 0.47))

    monkeypatch.setattr(exporting, "compare_results", lossy)
    with pytest.raises(ModelError, match=r"mAP falls by 3\.00 points, from 50\.00 to 47\.00"):
        slimreid.export(run, tmp_path / "out", precision="int8")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("subset", [("rgb",), ("tir",), ("rgb", "tir")], ids="+".join)
@pytest.mark.parametrize("batch", BATCHES)
def test_every_subset_and_batch_gives_what_torch_gives(exported, run, subset, batch):
    loaded = slimreid.load(run)
    rng = np.random.default_rng(batch)
    images = {name: rng.standard_normal((batch, 3, 32, 16), dtype=np.float32) for name in subset}
    cameras = rng.integers(-1, 2, batch)
    expected = torch_runner(loaded)(images, cameras)
    found = engine_runner(OnnxEngine(exported, 1))(images, cameras)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("ready_graphs")
def test_only_an_exported_model_is_replaced(run, tmp_path, exported):
    out = tmp_path / "out"
    shutil.copytree(exported, out)
    before = json.loads((out / "model.json").read_text(encoding="utf-8"))
    with pytest.raises(DataError, match="not an empty folder"):
        slimreid.export(run, out)
    slimreid.export(run, out, max_loss=2, overwrite=True)
    after = json.loads((out / "model.json").read_text(encoding="utf-8"))
    assert (before["check"]["max_loss"], after["check"]["max_loss"]) == (0.5, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("all I have")
    with pytest.raises(DataError, match="not an exported model"):
        slimreid.export(run, other, overwrite=True)


def test_wrong_options_are_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="precision 'int4'"):
        slimreid.export(run, tmp_path / "out", precision="int4")
    with pytest.raises(ConfigError, match="max-loss takes points"):
        slimreid.export(run, tmp_path / "out", max_loss=-1)
    with pytest.raises(DataError, match="nowhere"):
        slimreid.export(run, tmp_path / "out", data=tmp_path / "nowhere.csv")
    assert list(tmp_path.iterdir()) == []


def test_noise_where_the_data_are_gone(run, tmp_path):
    loaded = slimreid.load(run)
    config = replace(loaded.config, data=replace(loaded.config.data, manifest=str(tmp_path / "gone.csv")))
    samples = check_samples(replace(loaded, card=replace(loaded.card, config=config)))
    assert samples.source.startswith("random noise")
    assert samples.labels is None
    assert samples.present.all()


def test_samples_are_whole_identities(run):
    samples = check_samples(slimreid.load(run))
    assert len(samples) == 24
    assert (samples.query.tolist(), samples.gallery.tolist()) == (
        [i for i in range(24) if i in samples.query],
        [i for i in range(24) if i not in samples.query],
    )
    assert not samples.present.all(), "some modalities are missing"
    assert len(samples.have(("rgb", "tir"))) == samples.present.all(axis=1).sum()
    rows = read_manifest(run.parent / "set" / "manifest.csv").samples
    drawn = draw_identities(rows, 9)
    assert 0 < len(drawn) <= 9
    assert [rows.index(sample) for sample in drawn] == sorted(rows.index(sample) for sample in drawn)
    assert len(draw_identities(rows, 10**6)) == len(rows)


def test_a_draw_has_whole_identities_only(run):
    rows = read_manifest(run.parent / "set" / "manifest.csv").samples
    sizes = Counter(sample.identity for sample in rows)
    for most in range(max(sizes.values()), len(rows) + 1):
        drawn = Counter(sample.identity for sample in draw_identities(rows, most))
        assert all(sizes[name] == count for name, count in drawn.items())
        assert most - max(sizes.values()) < sum(drawn.values()) <= most


@pytest.mark.usefixtures("ready_graphs")
def test_a_part_of_the_samples_must_hold_the_bound_with_its_interval(run, tmp_path, monkeypatch):
    monkeypatch.setattr("slimreid.exporting.samples.MOST_SAMPLES", 16)
    card = slimreid.export(run, tmp_path / "out")
    assert card.check["source"].startswith("16 of 24 samples")
    accuracy = card.check["accuracy"]
    assert not accuracy["whole"]
    assert accuracy["most_loss_points"] == pytest.approx(-100 * accuracy["difference"]["low"])


def test_a_broken_image_is_named_or_left_out(run, tmp_path):
    shutil.copytree(run.parent / "set", tmp_path / "set")
    manifest = tmp_path / "set" / "manifest.csv"
    test = [sample for sample in read_manifest(manifest).samples if sample.split in ("query", "gallery")]
    image = next(sample.images["rgb"] for sample in test if "rgb" in sample.images)
    broken = read_manifest(manifest).file(image)
    broken.write_bytes(b"no image")
    loaded = slimreid.load(run)
    with pytest.raises(DataError, match=broken.name):
        check_samples(loaded, manifest)
    config = replace(loaded.config, data=replace(loaded.config.data, on_error="skip"))
    found = check_samples(replace(loaded, card=replace(loaded.card, config=config)), manifest)
    assert len(found) == len(test) - 2, "as query and in the gallery"


def test_outliers_stay_float32_and_more_layers_until_it_is_good():
    order = tuple("abcdefghijklmnop")
    small = MOST_ERROR / 32
    errors = dict.fromkeys(order, small)
    assert choose_layers(errors, lambda layers: True) == ()
    for need, found in ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (99, 16)):
        assert choose_layers(errors, lambda layers, need=need: len(layers) >= need) == order[:found]
    one = errors | {"k": 0.9}
    assert choose_layers(one, lambda layers: True) == ("k",)
    assert choose_layers(one, lambda layers: len(layers) > 2) == ("k", "a", "b", "c")
    assert choose_layers(dict.fromkeys(order, 0.9), lambda layers: True) == ("a", "b"), "one in eight"


def test_the_number_of_outliers_is_that_of_a_plain_loop():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = sorted(rng.exponential(0.002, 40).tolist(), reverse=True)
        count = 0
        while sum(values[count:]) > MOST_ERROR and count < 5:
            count += 1
        assert outlier_layers({str(i): value for i, value in enumerate(values)}) == count


def test_an_exported_model_tells_the_same_kept_patches(exported, run):
    """As the page of the service shows them, for samples of different subsets in one batch."""
    rng = np.random.default_rng(5)
    samples = [
        {name: rng.integers(0, 256, (40, 20, 3), dtype=np.uint8) for name in subset}
        for subset in (("rgb", "tir"), ("tir",), ("rgb",), ("rgb", "tir"))
    ]
    trained, found = slimreid.load(run), slimreid.load(exported)
    assert found.grid == trained.grid == trained.model.backbone.grid
    answers = kept_patches(found, samples)
    assert answers == kept_patches(trained, samples)
    assert [list(answer) for answer in answers] == [list(sample) for sample in samples]
    assert all(len(set(grid.kept)) == len(grid.kept) == 4 for answer in answers for grid in answer.values())
