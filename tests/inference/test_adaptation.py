"""Means of a site's cameras: by hand, and in every form of a model."""

from __future__ import annotations

import csv
import logging
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import slimreid
from slimreid.errors import ConfigError, DataError, ModelError
from slimreid.evaluation.reports.evaluate import evaluate_model
from slimreid.exporting.export import export
from slimreid.gallery.gallery import Gallery
from slimreid.inference.adapt import fit_adaptation
from slimreid.inference.adaptation import Adaptation, shrunk_means, subtract_means
from slimreid.inference.embedding_sets.files import read_embeddings
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, parquet_files
from slimreid.inference.features.data import open_data
from slimreid.inference.features.embed_data import embed_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.model_card import file_fingerprint
from support.commands import run_command
from support.exported import write_exported_model
from support.models import write_random_model
from support.runs import NAMES, write_set
from support.without_extras import run_command as run_without_torch


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A manifest whose training rows are those of a site, with gaps; its second camera is dark."""
    manifest = write_set(tmp_path_factory.mktemp("site"), missing=True)
    for path in manifest.parent.rglob("*_2_?.png"):
        with Image.open(path) as image:
            dark = image.point(lambda value: value // 4)
        dark.save(path)
    return manifest


@pytest.fixture(scope="module")
def trained(tmp_path_factory, site):
    return write_random_model(tmp_path_factory.mktemp("model"), site)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, trained, site):
    out = tmp_path_factory.mktemp("adapted") / "here"
    slimreid.adapt(trained.path, site, out, split="train")
    return slimreid.load(out)


def test_means_are_those_of_a_plain_loop_where_cameras_differ_much():
    rng = np.random.default_rng(0)
    camera = np.repeat([0, 1, 2], [40, 40, 3])
    blocks = (rng.standard_normal((83, 2, 4)) * 0.01 + camera[:, None, None]).astype(np.float32)
    holds = np.ones((83, 2), bool)
    holds[::5, 1] = False
    found = shrunk_means(blocks, holds, camera, 3)
    for s in range(2):
        rows = holds[:, s]
        np.testing.assert_allclose(found[3, s], blocks[rows, s].mean(0), atol=1e-6)
        for c in range(3):
            np.testing.assert_allclose(found[c, s], blocks[rows & (camera == c), s].mean(0), atol=1e-3)


def test_few_images_are_drawn_to_the_mean_of_all_by_the_variances():
    rng = np.random.default_rng(1)
    counts = [200, 200, 200, 2]
    camera = np.repeat(np.arange(4), counts)
    offsets = rng.standard_normal((4, 1, 6))
    blocks = (offsets[camera] + rng.standard_normal((602, 1, 6))).astype(np.float32)
    found = shrunk_means(blocks, np.ones((602, 1), bool), camera, 4)[:, 0]
    means = np.array([blocks[camera == c, 0].mean(0) for c in range(4)])
    everything = blocks[:, 0].mean(0)
    weights = [
        np.linalg.norm(found[c] - everything) / np.linalg.norm(means[c] - everything) for c in range(4)
    ]
    within = sum(((blocks[camera == c, 0] - means[c]) ** 2).sum() for c in range(4)) / (602 - 4)
    between = ((means - means.mean(0)) ** 2).sum() / 3 - within * np.mean([1 / n for n in counts])
    np.testing.assert_allclose(weights, [n / (n + within / between) for n in counts], rtol=1e-4)
    assert weights[3] < weights[0] - 0.1


@pytest.mark.parametrize(
    "camera", [np.zeros(6, int), np.full(6, -1), np.arange(6)], ids=["one", "none", "own"]
)
def test_where_cameras_tell_nothing_all_get_the_mean_of_the_site(camera):
    blocks = np.random.default_rng(2).standard_normal((6, 1, 3)).astype(np.float32)
    found = shrunk_means(blocks, np.ones((6, 1), bool), camera.astype(np.int64), 6)
    np.testing.assert_allclose(found, np.broadcast_to(blocks.mean(0), (7, 1, 3)), atol=1e-6)


def test_a_block_that_was_never_seen_is_left_alone():
    blocks = np.ones((4, 2, 3), np.float32)
    holds = np.array([[True, False]] * 4)
    assert not shrunk_means(blocks, holds, np.zeros(4, np.int64), 1)[:, 1].any()


def test_means_are_taken_off_what_a_sample_has_and_the_rest_is_filled_anew():
    rng = np.random.default_rng(3)
    blocks = unit(rng.standard_normal((2, 3, 4))).astype(np.float32)
    means = (0.3 * rng.standard_normal((2, 3, 4))).astype(np.float32)
    holds = np.array([[True, True, True], [True, False, True]])
    found = subtract_means(blocks, holds, means, unit=True, fill=0.1)
    np.testing.assert_allclose(found[0], unit(blocks[0] - means[0]), atol=1e-6)
    first, last = (unit(blocks[1, s] - means[1, s]) for s in (0, 2))
    np.testing.assert_allclose(found[1], [first, 0.1 * (first + last) / 2, last], atol=1e-6)
    raw = subtract_means(blocks, holds, means, unit=False, fill=None)
    np.testing.assert_allclose(raw[1, 1], blocks[1, 1])
    np.testing.assert_allclose(raw[1, 0], blocks[1, 0] - means[1, 0], atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        ("model.fusion=hdm", "model.neck_feature=after"),
        ("model.fusion=hdm_atmoe", "model.reduction=none"),
        ("model.missing=zeros",),
        ("model.heads=split", "model.missing_fill_scale=0.5"),
    ],
    ids=["hdm", "moe", "zeros", "split"],
)
def test_means_of_zero_change_nothing_in_any_kind_of_model(options, site, tmp_path):
    loaded = write_random_model(tmp_path, site, *options)
    means = {k: np.zeros((1, *loaded.block_shape(k)), np.float32) for k in loaded.sizes if k != "both"}
    nothing = Adaptation((), means, np.zeros(0, np.int64), np.zeros(0, np.int64), "")
    data = open_data(loaded, site)
    before, after = (embed_data(model, data)[0] for model in (loaded, replace(loaded, adaptation=nothing)))
    np.testing.assert_allclose(after.features, before.features, atol=1e-6)
    assert before.fingerprint != after.fingerprint


def test_fitting_counts_each_camera_per_modality(trained, adapted, site):
    assert (adapted.adaptation.cameras, adapted.adaptation.counts.tolist()) == (("1", "2"), [12, 12])
    data = open_data(trained, site)
    rows = [s for s in data.manifest.samples if s.split == "train"]
    for kind in ("original", "slimmed"):
        S, C = trained.block_shape(kind)
        by_block = [[] for _ in range(S)]
        for sample in rows:
            images = {m: data.manifest.file(i) for m, i in sample.images.items()}
            batch_features = trained.embed([images], feature=kind)[0].reshape(S, C)
            for m, name in enumerate(NAMES):
                if name in images:
                    by_block[m].append(unit(batch_features[m]))
        expected = np.array([np.mean(block, axis=0) for block in by_block])
        np.testing.assert_allclose(adapted.adaptation.means[kind][-1], expected, atol=1e-5)


def test_all_ways_to_embed_agree_and_subtract(trained, adapted, site, tmp_path):
    data = open_data(adapted, site)
    found, notes = embed_data(adapted, data, split="query")
    samples = [s for s in data.manifest.samples if s.split == "query"]
    images = [{m: data.manifest.file(i) for m, i in s.images.items()} for s in samples]
    one_by_one = adapted.embed(images, cameras=[s.camera for s in samples])
    np.testing.assert_allclose(found.features, one_by_one, atol=1e-5)
    assert not any("not adapted" in note for note in notes)
    plain = trained.embed(images, feature="original").reshape(len(images), 3, -1)
    means = adapted.adaptation.means["original"]
    own = adapted.embed(images, feature="original", cameras=[s.camera for s in samples])
    for n, sample in enumerate(samples):
        row = means[adapted.adaptation.cameras.index(sample.camera)]
        blocks = own[n].reshape(3, -1)
        for m, name in enumerate(NAMES):
            if name in sample.images:
                np.testing.assert_allclose(unit(blocks[m]), unit(unit(plain[n, m]) - row[m]), atol=1e-4)
    slimreid.embed_dataset(site, adapted.path, tmp_path / "rows")
    table = pq.read_table(parquet_files(tmp_path / "rows" / ROWS_FOLDER))
    whole, _ = embed_data(adapted, data)
    order = np.argsort(table["id"].to_numpy())
    features = np.array(table["feature"].to_pylist(), np.float32)[order]
    np.testing.assert_allclose(features, whole.features, atol=1e-5)


def test_unknown_cameras_get_the_mean_of_the_site_and_are_told_once(adapted, site, caplog):
    image = {"rgb": site.parent / "rgb" / "9_1_0.png"}
    model = replace(adapted, adaptation=replace(adapted.adaptation, told=set()))
    with caplog.at_level(logging.WARNING):
        unknown = model.embed([image], cameras=["new"])
        model.embed([image, image], cameras=["new", "1"])
    assert [r.message for r in caplog.records] == [
        "camera unknown to the adapted model: 'new'; it gets the mean of the site (known: 1, 2)"
    ]
    np.testing.assert_array_equal(unknown, model.embed([image]))
    assert np.abs(unknown - model.embed([image], cameras=["1"])).max() > 1e-4
    data = open_data(model, site)
    renamed = replace(
        data, manifest=data.manifest.with_samples(replace(s, camera="x") for s in data.manifest.samples)
    )
    notes = embed_data(model, renamed, split="query")[1]
    assert "the model was not adapted to these cameras: x; they get the mean of the site" in notes
    other = embed_data(model, data, split="query", extraction=Extraction(cameras="other"))[0]
    np.testing.assert_allclose(other.features, embed_data(model, renamed, split="query")[0].features)


def test_adapted_features_are_never_mixed_with_others(trained, adapted, site, tmp_path, capsys):
    assert adapted.fingerprint == trained.fingerprint
    assert adapted.feature_fingerprint != trained.feature_fingerprint
    assert file_fingerprint(adapted.path) == adapted.feature_fingerprint
    out = tmp_path / "f.safetensors"
    code, _, err = run_command("embed", site, "--model", trained.path, "--out", out, capsys=capsys)
    assert code == 0, err
    words = ("search", site.parent / "rgb" / "9_1_0.png", "--in", out, "--model", adapted.path)
    code, _, err = run_command(*words, capsys=capsys)
    assert (code, "features of another model" in err) == (1, True)
    folder = tmp_path / "cache"
    extraction = Extraction(cache=folder)
    first = embed_data(trained, open_data(trained, site), extraction=extraction)[0]
    second = embed_data(adapted, open_data(adapted, site), extraction=extraction)[0]
    assert np.abs(first.features - second.features).max() > 1e-3


def test_images_it_was_adapted_with_are_not_evaluated(trained, adapted, site, tmp_path):
    evaluation = evaluate_model(adapted, site)
    assert evaluation.adaptation == adapted.adaptation.digest
    everything = fit_adaptation(trained, open_data(trained, site))
    with pytest.raises(DataError, match=r"of the .* images to evaluate on were used to adapt the model"):
        evaluate_model(replace(trained, adaptation=everything), site)
    moved = tmp_path / "elsewhere"
    shutil.copytree(site.parent, moved)
    with pytest.raises(DataError, match="were used to adapt"):
        evaluate_model(replace(trained, adaptation=everything), moved)


def test_a_threshold_of_the_plain_model_is_refused(trained, adapted, site, tmp_path, capsys):
    code, _, err = run_command("evaluate", trained.path, "--out", tmp_path / "plain", capsys=capsys)
    assert code == 0, err
    words = (
        "evaluate",
        adapted.path,
        "--data",
        site,
        "--threshold",
        tmp_path / "plain",
        "--out",
        tmp_path / "e",
    )
    code, _, err = run_command(*words, capsys=capsys)
    assert (code, "another adaptation" in err) == (2, True)


def test_an_exported_model_is_adapted_without_torch(site, tmp_path):
    model = write_exported_model(tmp_path / "exported", site, "model.missing=zeros", cameras=())
    words = ("adapt", str(model), str(site), "--split", "train", "--out", "here")
    done = run_without_torch(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fewer than 50 samples of 1, 2" in " ".join(done.stdout.split())
    loaded, plain = slimreid.load(tmp_path / "here"), slimreid.load(model)
    assert loaded.adaptation.cameras == ("1", "2")
    image = {"rgb": site.parent / "rgb" / "9_1_0.png"}
    before = plain.embed([image], feature="original")
    assert np.abs(loaded.embed([image], feature="original", cameras=["1"]) - before).max() > 1e-4
    query = str(image["rgb"])
    done = run_without_torch(
        "search", query, "--in", str(site.parent), "--model", "here", "--query-camera", "1", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "not adapted" not in done.stdout
    done = run_without_torch("search", query, "--in", str(site.parent), "--model", "here", cwd=tmp_path)
    assert "not adapted to these cameras: no name" in " ".join(done.stdout.split())
    done = run_without_torch(*words, cwd=tmp_path)
    assert (done.returncode, "exists and is not an empty folder" in done.stderr) == (1, True)
    done = run_without_torch(*words, "--overwrite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_adapted_model_is_exported_with_its_adaptation(tmp_path):
    site = write_set(tmp_path / "set")
    loaded = write_random_model(tmp_path / "run", site, modalities=("rgb",))
    slimreid.adapt(loaded.path, site, tmp_path / "here", split="train")
    adapted = slimreid.load(tmp_path / "here")
    export(adapted, tmp_path / "onnx", data=site)
    exported = slimreid.load(tmp_path / "onnx")
    assert exported.feature_fingerprint == adapted.feature_fingerprint
    image = {"rgb": site.parent / "rgb" / "9_1_0.png"}
    np.testing.assert_allclose(
        exported.embed([image], cameras=["2"]), adapted.embed([image], cameras=["2"]), atol=1e-4
    )
    (tmp_path / "onnx" / "adaptation.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="adaptation"):
        slimreid.load(tmp_path / "onnx")


def test_a_gallery_takes_the_cameras_of_its_rows_and_of_the_query(adapted, site, tmp_path):
    image = site.parent / "rgb" / "9_1_0.png"
    with Gallery.create(tmp_path / "g.gallery", adapted) as gallery:
        gallery.enrol(site)
        row = next(row for row in gallery.store.rows() if row.camera == "2")
        sample = {m: ref.path for m, ref in row.files.items()}
        stored = gallery.store.features([row.id])[0]
        np.testing.assert_allclose(stored, adapted.embed([sample], cameras=[row.camera])[0], atol=1e-6)
        named = gallery.query({"rgb": image}, camera="1")
        np.testing.assert_allclose(named.features, adapted.embed({"rgb": image}, cameras=["1"]), atol=1e-6)
        assert np.abs(named.features - gallery.query({"rgb": image}).features).max() > 1e-4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{model}", "{site}", "--out", "{out}", "--split", "gallery"], None),
        (["{model}", "{empty}", "--out", "{out}"], "too few rows to adapt with: 1"),
        (["{model}", "nowhere", "--out", "{out}"], "nowhere: no such file or folder"),
        (["{model}", "{site}", "--out", "{model}"], "exists"),
    ],
)
def test_wrong_usage_is_one_clear_message(words, message, trained, site, tmp_path, capsys):
    with site.open() as file:
        head, first, *_ = csv.reader(file)
    empty = tmp_path / "few.csv"
    with empty.open("w", newline="") as file:
        csv.writer(file).writerows([head, [str(site.parent / c) if c.endswith(".png") else c for c in first]])
    places = {"model": trained.path, "site": site, "out": tmp_path / "o", "empty": empty}
    code, out, err = run_command("adapt", *(word.format(**places) for word in words), capsys=capsys)
    assert (code == 0) == (message is None), err
    assert (message or "written") in " ".join((out + err).split())


def test_a_camera_is_named_for_a_bare_folder_only(adapted, site, tmp_path, capsys):
    photos = tmp_path / "photos"
    shutil.copytree(site.parent / "rgb", photos)
    out = tmp_path / "f.safetensors"
    words = ("--model", adapted.path, "--out", out, "--camera", "2")
    code, _, err = run_command("embed", photos, "--modality", "rgb", *words, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    assert set(found.cameras) == {"2"}
    first = photos / found.paths[0]["rgb"]
    np.testing.assert_allclose(found.features[:1], adapted.embed({"rgb": first}, cameras=["2"]), atol=1e-5)
    code, _, err = run_command("embed", site, *words, capsys=capsys)
    assert (code, "a camera is named for a bare folder only" in err) == (2, True)


def test_adapting_anew_begins_with_the_plain_model(trained, adapted, site):
    again = fit_adaptation(adapted, open_data(adapted, site), "train")
    assert again.digest == adapted.adaptation.digest
    with pytest.raises(ConfigError, match="no feature"):
        adapted.embed({"rgb": site.parent / "rgb" / "9_1_0.png"}, feature="fused")
