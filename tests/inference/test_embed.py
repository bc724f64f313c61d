"""`slimreid.load(path).embed(...)`: any form of image gives the features of evaluation."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import slimreid
from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from support.files import write_image
from support.models import write_random_model
from support.runs import NAMES, write_set


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), val=False, missing=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, manifest):
    return write_random_model(tmp_path_factory.mktemp("model"), manifest)


@pytest.fixture(scope="module")
def samples(manifest):
    table = read_manifest(manifest)
    return [{name: table.file(image) for name, image in s.images.items()} for s in table.samples]


@pytest.fixture(scope="module")
def expected(loaded):
    return extract_features(loaded, open_data(loaded))[NAMES]


def columns(samples, convert=lambda path: path):
    return {name: [convert(sample[name]) if name in sample else None for sample in samples] for name in NAMES}


def as_array(path):
    return np.asarray(Image.open(path))


@pytest.mark.parametrize(
    "convert",
    [
        lambda path: path,
        str,
        Image.open,
        as_array,
        lambda path: as_array(path) / 255,
        lambda path: torch.from_numpy(as_array(path).copy()).permute(2, 0, 1),
        lambda path: torch.from_numpy(as_array(path) / 255.0).permute(2, 0, 1).float(),
    ],
    ids=["path", "text", "pil", "array", "float array", "tensor", "float tensor"],
)
def test_embeddings_are_the_features_of_evaluation(loaded, samples, expected, convert):
    """The same samples in the same batches: equal to the last bit."""
    chosen = samples[:10]
    found = loaded.embed(columns(chosen, convert))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    reference = expected.get("both", np.arange(10))
    np.testing.assert_allclose(found, reference, atol=1e-6, rtol=0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_paths_give_the_very_bits_of_evaluation(loaded, samples, expected):
    """36 samples, of which the 12 of the test are there twice, as query and gallery."""
    assert np.array_equal(loaded.embed(columns(samples[:20])), expected.get("both", np.arange(20)))


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_batches_do_not_matter(loaded, samples, batch):
    found = loaded.embed(columns(samples[:7]), batch=batch)
    np.testing.assert_allclose(found, loaded.embed(columns(samples[:7])), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["original", "slimmed", "both"])
def test_kinds_of_features(loaded, samples, expected, kind):
    found = loaded.embed(columns(samples[:3]), feature=kind)
    np.testing.assert_allclose(found, expected.get(kind, np.arange(3)), atol=1e-6, rtol=0)


def test_ways_to_give_samples(loaded, samples):
    some = samples[:4]
    found = loaded.embed(columns(some))
    assert np.array_equal(loaded.embed(some), found), "a list of samples"
    aliases = {"vis": "rgb", "NI": "nir", "thermal": "tir"}
    assert np.array_equal(loaded.embed({a: columns(some)[n] for a, n in aliases.items()}), found)
    one = next(s for s in samples if len(s) == 3)
    single = loaded.embed(one)
    assert single.shape == (1, loaded.model.sizes["both"])
    assert np.array_equal(single, loaded.embed([one]))
    stack = np.stack([as_array(s["rgb"]) for s in samples if "rgb" in s][:3])
    three = loaded.embed({"rgb": stack})
    assert np.array_equal(three, loaded.embed({"rgb": list(stack)}))
    assert np.array_equal(three, loaded.embed({"rgb": torch.from_numpy(stack).permute(0, 3, 1, 2)}))
    assert loaded.embed({"rgb": []}).shape == (0, loaded.model.sizes["both"])
    assert loaded.embed([]).shape == (0, loaded.model.sizes["both"])


def test_a_model_of_one_modality_takes_a_plain_list(manifest, samples, tmp_path):
    loaded = write_random_model(tmp_path, manifest, modalities=("nir",))
    paths = [s["nir"] for s in samples if "nir" in s][:3]
    found = loaded.embed(paths)
    assert np.array_equal(found, loaded.embed({"nir": paths}))
    np.testing.assert_allclose(found[:1], loaded.embed(paths[0]), atol=1e-6, rtol=0)
    np.testing.assert_allclose(found[1:2], loaded.embed(as_array(paths[1])), atol=1e-6, rtol=0)


def test_cameras_are_known_by_name(manifest, samples, tmp_path):
    loaded = write_random_model(tmp_path, manifest, "model.camera_embedding=true", cameras=("1", "2"))
    cameras = [s.camera for s in read_manifest(manifest).samples][:6]
    assert set(cameras) == {"1", "2"}
    data = open_data(loaded)
    known = extract_features(loaded, data)[NAMES].get("both", np.arange(6))
    mean = extract_features(loaded, data, options=Extraction(cameras="other"))[NAMES].get(
        "both", np.arange(6)
    )
    some = columns(samples[:6])
    np.testing.assert_allclose(loaded.embed(some, cameras=cameras), known, atol=1e-6, rtol=0)
    np.testing.assert_allclose(loaded.embed(some), mean, atol=1e-6, rtol=0)
    mixed = loaded.embed(some, cameras=[*cameras[:3], "9", None, "x"])
    np.testing.assert_allclose(mixed, np.concatenate([known[:3], mean[3:]]), atol=1e-6, rtol=0)


def test_windows_and_scaled_decoding_of_the_run_hold(manifest, tmp_path):
    """Deep thermal images and large JPEGs are read as in the run."""
    deep = np.random.default_rng(0).integers(29000, 31000, (40, 20)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "t.png")
    colour = np.random.default_rng(1).integers(0, 256, (160, 80, 3), dtype=np.uint8)
    Image.fromarray(colour).save(tmp_path / "r.jpg")
    (tmp_path / "manifest.csv").write_text("split,identity,camera,rgb,tir\nquery,a,1,r.jpg,t.png\n")
    options = ("data.windows={tir: [29000.0, 30500.0]}", "data.scaled_decode=true")
    loaded = write_random_model(tmp_path / "model", tmp_path / "manifest.csv", *options)
    whole = extract_features(loaded, open_data(loaded))["rgb", "tir"].get("both")
    found = loaded.embed({"rgb": tmp_path / "r.jpg", "tir": deep})
    assert np.array_equal(found, whole)
    config = replace(loaded.config, data=replace(loaded.config.data, windows=None))
    other = replace(loaded, card=replace(loaded.card, config=config))
    assert not np.allclose(other.embed({"rgb": tmp_path / "r.jpg", "tir": deep}), whole, atol=1e-4)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (["a.png"], ModelError, r"the model sees rgb, nir, tir; say which these are"),
        ({"depth": "a.png"}, ModelError, "images of 'depth'; the model knows rgb, nir, tir"),
        ({}, DataError, "at least one modality"),
        ({"rgb": "a.png", "vis": "b.png"}, DataError, "each only once"),
        ({"rgb": ["a.png"] * 2, "nir": ["a.png"]}, DataError, "2 of 'rgb', 1 of 'nir'; use None for gaps"),
        ({"rgb": ["x.png", None], "nir": [None, None]}, DataError, "sample 1 has no image"),
        ({"rgb": ["gone.png"]}, DataError, r"sample 0, 'rgb': gone\.png: no such file"),
        (
            {"rgb": [np.zeros((8, 4, 3), np.uint8), np.zeros((4, 4, 9))]},
            DataError,
            "sample 1, 'rgb': an array",
        ),
        (
            {"rgb": np.zeros((8, 4)), "tir": np.zeros((4, 8))},
            DataError,
            "sample 0: 'tir' is 8×4 but 'rgb' is 4×8",
        ),
        ({"rgb": [object()]}, DataError, "sample 0, 'rgb': a object is not an image"),
    ],
)
def test_wrong_input_is_named(loaded, images, error, message):
    with pytest.raises(error, match=message):
        loaded.embed(images)


def test_wrong_options_are_named(loaded):
    one = {"rgb": np.zeros((8, 4, 3), np.uint8)}
    with pytest.raises(ConfigError, match="no feature 'fused'"):
        loaded.embed(one, feature="fused")
    with pytest.raises(ConfigError, match="batch must be at least 1"):
        loaded.embed(one, batch=0)
    with pytest.raises(DataError, match="2 cameras for 1 samples"):
        loaded.embed(one, cameras=["1", "2"])


def test_the_mode_of_the_model_is_left_as_it_was(loaded):
    loaded.model.train()
    loaded.embed({"rgb": np.zeros((8, 4, 3), np.uint8)})
    assert loaded.model.training
    loaded.model.eval()


def test_the_example_of_the_documentation_runs(trained_run, tmp_path, monkeypatch):
    page = Path(__file__).resolve().parents[2] / "docs" / "embedding.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    shutil.copy(trained_run / "model.safetensors", tmp_path / "runs" / "first")
    for name in ("a_rgb", "b_rgb", "a_tir"):
        write_image(tmp_path / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert names["features"].shape == (2, slimreid.load("runs/first").model.sizes["both"])
    assert names["scores"].shape == (2, 2)
    assert np.isfinite(names["scores"]).all(), "both have a visible image"
