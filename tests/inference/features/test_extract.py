"""Features of datasets: equal to single forwards, read once, kept while nothing changes."""

import logging
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import slimreid.data.sample_reader as reader_module
from slimreid.data.images.decode import read_image
from slimreid.data.images.resize import resize
from slimreid.data.manifest import read_manifest, write_manifest
from slimreid.data.sample_reader import normalise
from slimreid.errors import ConfigError, DataError
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.modalities import all_subsets
from support.models import write_random_model
from support.runs import NAMES, write_set

SUBSETS = all_subsets(NAMES)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), val=False, missing=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, manifest):
    return write_random_model(tmp_path_factory.mktemp("model"), manifest, "model.camera_embedding=true")


@pytest.fixture
def decoded(monkeypatch):
    """Counts how often the files of a sample are read."""
    calls = []
    real = reader_module.read_images
    monkeypatch.setattr(
        reader_module, "read_images", lambda images, *rest: (calls.append(images), real(images, *rest))[1]
    )
    return calls


def one_by_one(loaded, manifest, sample, subset):
    """Features of one sample in one subset, by hand."""
    t = loaded.config.transforms
    images = {}
    for name in subset:
        if name in sample.images:
            pixels = read_image(manifest.file(sample.images[name]))
            seen = normalise(resize(pixels, t.size, t.test_resize), t.mean, t.std)
            images[name] = torch.from_numpy(seen)[None]
    if not images:
        return None
    camera = torch.tensor([loaded.cameras.index(sample.camera)])
    with torch.no_grad():
        return loaded.model(images, camera).features


@pytest.mark.parametrize("missing", ["skip", "zeros"])
def test_features_of_every_subset_are_those_of_single_samples(manifest, tmp_path, missing):
    loaded = write_random_model(
        tmp_path, manifest, "model.camera_embedding=true", f"model.missing={missing}", "batch.test=4"
    )
    data = open_data(loaded)
    data = replace(data, manifest=data.manifest.with_samples(data.manifest.samples[:12]))
    found = extract_features(loaded, data, SUBSETS)
    assert tuple(found) == tuple(SUBSETS)
    empty = 0
    for subset, features in found.items():
        rows = features.rows.tolist()
        expected = [one_by_one(loaded, data.manifest, s, subset) for s in data.manifest.samples]
        assert rows == [i for i, single in enumerate(expected) if single is not None]
        empty += len(expected) - len(rows)
        for kind in ("original", "slimmed", "both"):
            reference = torch.cat([F.normalize(single[kind]) for single in expected if single is not None])
            np.testing.assert_allclose(features.get(kind), reference.numpy(), atol=1e-5, rtol=0)
    assert empty > 0, "some samples of this set lack a modality"


def test_images_are_read_once_for_all_subsets_and_for_both_sides(loaded, decoded):
    data = open_data(loaded)
    found = extract_features(loaded, data, SUBSETS)
    different = {tuple(i.path for i in s.images.values()) for s in data.manifest.samples}
    assert len(decoded) == len(different) < len(data.manifest.samples)
    whole = found[NAMES]
    query = [i for i, s in enumerate(data.manifest.samples) if s.split == "query"]
    gallery = [i for i, s in enumerate(data.manifest.samples) if s.split == "gallery"]
    assert np.array_equal(whole.get("both", np.array(query)), whole.get("both", np.array(gallery)))


def test_kinds_and_rows_that_are_not_there_are_refused(loaded, manifest, tmp_path):
    data = open_data(loaded)
    found = extract_features(loaded, data, [("tir",)])["tir",]
    with pytest.raises(ConfigError, match="no feature 'fused'; it has original, slimmed, both"):
        found.get("fused")
    lacking = int(np.flatnonzero(found.position < 0)[0])
    with pytest.raises(ValueError, match="no features"):
        found.get("both", np.array([lacking]))


def test_kept_features_are_used_again_without_reading_an_image(loaded, decoded, tmp_path):
    data = open_data(loaded)
    fresh = extract_features(loaded, data, SUBSETS, Extraction(cache=tmp_path))
    assert len(list(tmp_path.glob("features-*.safetensors"))) == 7
    count = len(decoded)
    again = extract_features(loaded, data, SUBSETS, Extraction(cache=tmp_path))
    assert len(decoded) == count
    for subset in SUBSETS:
        assert np.array_equal(fresh[subset].get("both"), again[subset].get("both"))
        assert np.array_equal(fresh[subset].position, again[subset].position)


def changed_weights(loaded, data, tmp_path):
    other = write_random_model(tmp_path / "other", data.path, "model.camera_embedding=true", seed=1)
    return other, data, {}


def changed_transform(loaded, data, tmp_path):
    transforms = replace(loaded.config.transforms, mean=0.4)
    card = replace(loaded.card, config=replace(loaded.config, transforms=transforms))
    return replace(loaded, card=card), data, {}


def changed_model_option(loaded, data, tmp_path):
    model = replace(loaded.config.model, missing="zeros")
    return replace(loaded, card=replace(loaded.card, config=replace(loaded.config, model=model))), data, {}


def changed_absent_weight(loaded, data, tmp_path):
    model = replace(loaded.config.model, missing_fill_scale=0.5)
    return replace(loaded, card=replace(loaded.card, config=replace(loaded.config, model=model))), data, {}


def changed_rows(loaded, data, tmp_path):
    return loaded, replace(data, manifest=data.manifest.with_samples(data.manifest.samples[1:])), {}


def changed_cameras(loaded, data, tmp_path):
    return loaded, data, {"cameras": "other"}


def changed_file(loaded, data, tmp_path):
    file = data.manifest.file(next(iter(data.manifest.samples[0].images.values())))
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    return loaded, data, {}


@pytest.mark.parametrize(
    "change",
    [
        changed_weights,
        changed_transform,
        changed_model_option,
        changed_absent_weight,
        changed_rows,
        changed_cameras,
        changed_file,
    ],
)
def test_kept_features_are_never_stale(loaded, decoded, tmp_path, change):
    data = open_data(loaded)
    extract_features(loaded, data, options=Extraction(cache=tmp_path))
    model, data, options = change(loaded, data, tmp_path)
    decoded.clear()
    extract_features(model, data, options=Extraction(cache=tmp_path, **options))
    assert decoded


def test_features_of_another_weight_for_what_is_absent_are_others(loaded, manifest, tmp_path):
    other = write_random_model(
        tmp_path / "m", manifest, "model.camera_embedding=true", "model.missing_fill_scale=1"
    )
    assert other.fingerprint == loaded.fingerprint
    found = []
    for model in (loaded, other, loaded):
        found.append(extract_features(model, open_data(model), SUBSETS, Extraction(cache=tmp_path)))
    for subset in SUBSETS:
        first, second, third = (f[subset].get("both") for f in found)
        assert np.array_equal(first, third)
        assert not np.array_equal(first, second), subset  # some samples lack modalities of their own


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "headless"])
def test_damaged_features_are_made_again_with_a_warning(loaded, decoded, tmp_path, damage, caplog):
    from safetensors.torch import save_file

    data = open_data(loaded)
    fresh = extract_features(loaded, data, options=Extraction(cache=tmp_path))[NAMES].get("both")
    (path,) = tmp_path.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[-3] ^= 1
        path.write_bytes(content)
    elif damage == "text":
        path.write_text("no tensors here")
    else:
        save_file({"rows": torch.zeros(3)}, path)
    decoded.clear()
    with caplog.at_level(logging.WARNING):
        again = extract_features(loaded, data, options=Extraction(cache=tmp_path))[NAMES].get("both")
    assert decoded
    assert path.name in caplog.text
    assert "damaged" in caplog.text
    assert np.array_equal(fresh, again)
    decoded.clear()
    extract_features(loaded, data, options=Extraction(cache=tmp_path))
    assert not decoded, "and the new file is good"


def test_broken_files_stop_or_are_left_out_as_the_run_says(tmp_path, caplog):
    manifest = write_set(tmp_path / "set", val=False)
    broken = tmp_path / "set" / "nir" / "9_1_0.png"
    broken.write_bytes(b"")
    loaded = write_random_model(tmp_path / "a", manifest)
    with pytest.raises(DataError, match=r"9_1_0\.png"):
        extract_features(loaded, open_data(loaded))
    loaded = write_random_model(tmp_path / "b", manifest, "data.on_error=skip")
    data = open_data(loaded)
    for _ in range(2):  # computed, then found in the cache
        found = extract_features(loaded, data, options=Extraction(cache=tmp_path / "cache"))[NAMES]
        rows = [i for i, s in enumerate(data.manifest.samples) if s.images["nir"].path == "nir/9_1_0.png"]
        assert sorted(found.dropped) == rows
        assert "9_1_0.png" in found.dropped[rows[0]]
        assert not set(rows) & set(found.rows.tolist())


def write_rgb_only(manifest):
    whole = read_manifest(manifest)
    samples = [replace(s, images={"rgb": s.images["rgb"]}) for s in whole.samples if "rgb" in s.images]
    path = manifest.parent / "only_rgb.csv"
    write_manifest(replace(whole, modalities=("rgb",), samples=tuple(samples)), path)
    return path


def test_data_with_fewer_more_or_no_modalities_of_the_model(loaded, manifest):
    data = open_data(loaded, write_rgb_only(manifest))
    assert (data.manifest.modalities, data.name, data.own) == (("rgb",), "only_rgb", False)
    assert extract_features(loaded, data)["rgb",].get("both").shape[1] == loaded.model.sizes["both"]

    text = manifest.read_text().replace("rgb,nir,tir", "depth,nir,tir", 1)
    path = manifest.parent / "depth.csv"
    path.write_text(text)
    data = open_data(loaded, path)
    assert (data.manifest.modalities, data.unknown) == (("nir", "tir"), ("depth",))

    path.write_text(text.replace("depth,nir,tir", "depth,event,sonar", 1))
    with pytest.raises(DataError, match="has depth, event, sonar, but the model knows rgb, nir, tir"):
        open_data(loaded, path)


def test_windows_of_modalities_that_the_data_lacks_do_no_harm(manifest, tmp_path):
    loaded = write_random_model(tmp_path, manifest, "data.windows={tir: [0.0, 200.0]}")
    extract_features(loaded, open_data(loaded, write_rgb_only(manifest)))
