"""Exported models behave as trained ones: the same call, the same features, without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import slimreid
from slimreid.data.images.resize import resize
from slimreid.data.manifest import read_manifest
from slimreid.data.sample_reader import normalise
from slimreid.errors import ConfigError, ModelError
from slimreid.inference.embedding_sets.files import read_embeddings, write_embeddings
from slimreid.inference.features.data import open_data
from slimreid.inference.features.embed_data import embed_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import join_branches
from slimreid.modalities import all_subsets
from support.exported import SIZES, expected_branches, write_exported_model
from support.runs import NAMES, write_set

SUBSETS = all_subsets(NAMES)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), val=False, missing=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, manifest):
    return slimreid.load(write_exported_model(tmp_path_factory.mktemp("model"), manifest))


def expected(loaded: LoadedModel, paths: dict[str, Path], camera: int, kind: str) -> np.ndarray:
    t = loaded.config.transforms
    images = {}
    for name, path in paths.items():
        pixels = np.asarray(Image.open(path).convert("RGB"))
        images[name] = normalise(resize(pixels, t.size, t.test_resize), t.mean, t.std)
    branches = {n: f[None] for n, f in expected_branches(images, camera).items()}
    return join_branches(branches, kind)[0]


def paths_of(manifest: Path) -> list[dict[str, Path]]:
    opened = read_manifest(manifest)
    return [{n: opened.file(i) for n, i in s.images.items()} for s in opened.samples]


def test_it_says_of_itself_what_a_trained_model_says(loaded):
    assert isinstance(loaded, LoadedModel)
    assert loaded.modalities == NAMES
    assert dict(loaded.sizes) == SIZES
    assert loaded.cameras == ("1", "2")
    assert loaded.second == "slimmed"
    assert len(loaded.feature_fingerprint) == 64
    assert loaded.feature_fingerprint != loaded.fingerprint
    assert loaded.similarity("slimmed").blocks == (("rgb",), ("nir",), ("tir",))
    with pytest.raises(ConfigError, match="no feature 'fused'"):
        loaded.similarity("fused")


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("batch", [1, 4, 100])
def test_a_mixed_batch_comes_back_in_order(loaded, manifest, kind, batch):
    samples = paths_of(manifest)[:16]
    shown = [
        {n: p for n, p in sample.items() if n in SUBSETS[i % len(SUBSETS)]} or sample
        for i, sample in enumerate(samples)
    ]
    names = ["2", None, "nowhere", "1"] * 4
    numbers = [1, -1, -1, 0] * 4
    found = loaded.embed(shown, feature=kind, cameras=names, batch=batch)
    assert found.dtype == np.float32
    reference = [expected(loaded, s, c, kind) for s, c in zip(shown, numbers, strict=True)]
    np.testing.assert_allclose(found, reference, atol=1e-5)


def test_features_of_a_dataset_are_those_of_single_samples(loaded, manifest, tmp_path):
    data = open_data(loaded)
    for workers in (0, 2):
        found = extract_features(loaded, data, SUBSETS, Extraction(cache=tmp_path, workers=workers))
        for subset, features in found.items():
            for row, feature in zip(features.rows.tolist(), features.get("both"), strict=True):
                sample = data.manifest.samples[row]
                paths = {n: data.manifest.file(i) for n, i in sample.images.items() if n in subset}
                camera = loaded.cameras.index(sample.camera)
                np.testing.assert_allclose(feature, expected(loaded, paths, camera, "both"), atol=1e-5)


def test_embeddings_are_written_and_read_back(loaded, tmp_path):
    found, _ = embed_data(loaded, open_data(loaded))
    write_embeddings(tmp_path / "e.safetensors", found)
    again = read_embeddings(tmp_path / "e.safetensors")
    assert np.array_equal(again.features, found.features)
    assert again.fingerprint == loaded.feature_fingerprint
    assert not write_embeddings(tmp_path / "e.safetensors", found), "the same bytes"


def test_other_devices_and_threads_are_refused(loaded, trained_run):
    with pytest.raises(ConfigError, match="an exported model runs on the CPU"):
        slimreid.load(loaded.path.parent, "cuda")
    with pytest.raises(ConfigError, match="threads must be at least 1"):
        slimreid.load(loaded.path, threads=0)
    with pytest.raises(ConfigError, match="threads can be set for exported models only"):
        slimreid.load(trained_run, threads=1)
    assert slimreid.load(loaded.path, threads=3).engine.threads == 3


def test_a_file_that_is_gone_or_altered_is_named(tmp_path):
    folder = write_exported_model(tmp_path)
    picture = {"rgb": np.zeros((8, 4, 3), np.uint8)}
    graph = folder / "model-r.onnx"
    graph.write_bytes(graph.read_bytes() + b"x")
    with pytest.raises(ModelError, match=r"model-r\.onnx: not as it was exported"):
        slimreid.load(folder).embed(picture)
    graph.unlink()
    with pytest.raises(ModelError, match=r"model-r\.onnx: cannot be read"):
        slimreid.load(folder).embed(picture)
    assert slimreid.load(folder).embed({"nir": picture["rgb"]}).shape == (1, SIZES["both"])
