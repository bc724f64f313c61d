"""`slimreid embed`, and the files it writes."""

import json
import re
from functools import partial

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from slimreid.data.manifest import read_manifest
from slimreid.errors import DataError
from slimreid.inference.embedding_sets.files import read_embeddings
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import extract_features
from support.commands import run_command
from support.models import write_random_model
from support.runs import NAMES, write_set

run = partial(run_command, "embed")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    return write_set(folder, val=False, missing=True, origin="real rgb, simulated nir/tir")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, manifest):
    return write_random_model(tmp_path_factory.mktemp("model"), manifest)


def test_a_manifest_is_embedded_with_all_it_says(manifest, loaded, tmp_path, capsys):
    out = tmp_path / "f.safetensors"
    code, text, err = run(manifest, "--model", loaded.path.parent, "--out", out, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    data = open_data(loaded)
    samples = data.manifest.samples
    assert np.array_equal(found.features, extract_features(loaded, data)[NAMES].get("both"))
    assert (found.feature, found.modalities, found.fingerprint) == ("both", NAMES, loaded.feature_fingerprint)
    assert found.identities == tuple(s.identity for s in samples)
    assert found.cameras == tuple(s.camera for s in samples)
    assert found.splits == tuple(s.split for s in samples)
    assert found.paths == tuple({n: i.path for n, i in s.images.items()} for s in samples)
    assert (found.root, found.origin) == (manifest.parent.as_posix(), "real rgb; simulated nir/tir")
    for words in (
        f"{len(samples)}",
        "real rgb; simulated nir/tir",
        loaded.feature_fingerprint[:12],
        str(out),
    ):
        assert words in text
    with safe_open(out, framework="np") as file:  # readable without SlimReID
        assert file.get_tensor("features").shape == (len(samples), loaded.model.sizes["both"])
        assert json.loads(file.metadata()["slimreid"])["identities"] == list(found.identities)
    first = out.read_bytes()
    assert run(manifest.parent, "--model", loaded.path, "--out", out, capsys=capsys)[0] == 0
    assert out.read_bytes() == first, "the folder of the manifest is the same thing"


def test_a_split_some_modalities_and_one_branch(manifest, loaded, tmp_path, capsys):
    out = tmp_path / "f.safetensors"
    options = ("--split", "query", "--modalities", "nir", "--feature", "slimmed")
    code, text, err = run(manifest, "--model", loaded.path, "--out", out, *options, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    queries = [s for s in read_manifest(manifest).samples if s.split == "query"]
    kept = [s for s in queries if "nir" in s.images]
    assert len(kept) < len(queries)
    assert found.paths == tuple({"nir": s.images["nir"].path} for s in kept)
    assert found.features.shape == (len(kept), loaded.model.sizes["slimmed"])
    reference = loaded.embed({"nir": [manifest.parent / p["nir"] for p in found.paths]}, feature="slimmed")
    np.testing.assert_allclose(found.features, reference, atol=1e-6, rtol=0)
    assert f"{len(queries) - len(kept)} of {len(queries)} samples left out" in " ".join(text.split())


def test_a_bare_folder_of_photos(manifest, loaded, tmp_path, capsys):
    out = tmp_path / "f.safetensors"
    code, text, err = run(manifest.parent / "tir", "--model", loaded.path, "--out", out, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    files = sorted(path.name for path in (manifest.parent / "tir").iterdir())
    assert sorted(p["rgb"] for p in found.paths) == files, "nothing says that they are thermal"
    assert set(found.identities) == set(found.cameras) == {""}
    assert re.search(r"identities\W+unknown", text)  # in a table, however wide the paths make it
    assert "the data has no nir, tir" in " ".join(text.split())
    assert "are taken as rgb" in " ".join(text.split())
    options = ("--modality", "thermal", "--out", out, "--overwrite")
    code, _, err = run(manifest.parent / "tir", "--model", loaded.path, *options, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    paths = [manifest.parent / "tir" / p["tir"] for p in found.paths]
    np.testing.assert_allclose(found.features, loaded.embed({"tir": paths}), atol=1e-6, rtol=0)


def test_a_folder_with_modalities_and_a_model_that_knows_cameras(manifest, tmp_path, capsys):
    loaded = write_random_model(tmp_path / "model", manifest, "model.camera_embedding=true")
    shots = tmp_path / "shots"
    for name in ("rgb", "nir"):
        (shots / name).mkdir(parents=True)
        (shots / name / "1.png").write_bytes((manifest.parent / name / "0_1_0.png").read_bytes())
    out = tmp_path / "f.safetensors"
    code, text, err = run(shots, "--model", loaded.path, "--out", out, capsys=capsys)
    assert code == 0, err
    found = read_embeddings(out)
    assert found.paths == ({"rgb": "rgb/1.png", "nir": "nir/1.png"},)
    reference = loaded.embed({"rgb": shots / "rgb" / "1.png", "nir": shots / "nir" / "1.png"})
    np.testing.assert_allclose(found.features, reference, atol=1e-6, rtol=0)
    assert "mean camera embedding" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["{set}", "--model", "people-tni"], 1, "no such model"),
        (["{set}", "--model", "nowhere"], 1, "nowhere: no such model"),
        (["nowhere", "--model", "{model}"], 1, "nowhere: no such file or folder"),
        (["{set}", "--model", "{model}", "--feature", "fused"], 2, "no feature 'fused'"),
        (["{set}", "--model", "{model}", "--modalities", "xyz"], 2, "use one of: r, n, t"),
        (["{set}", "--model", "{model}", "--modality", "rgb"], 2, "is for a folder without manifest"),
        (["{set}/rgb", "--model", "{model}", "--modality", "depth"], 2, "unknown modality 'depth'"),
        (["{set}/rgb", "--model", "{model}", "--modalities", "tir"], 2, "the data has rgb"),
        (["{set}", "--model", "{model}", "--split", "val"], 1, "no rows of split 'val'"),
        (["{set}/rgb/9_1_0.png", "--model", "{model}"], 1, "9_1_0.png: a single image; give its folder"),
    ],
)
def test_wrong_usage_is_one_clear_message(manifest, loaded, options, code, message, capsys, tmp_path):
    words = [o.format(set=manifest.parent, model=loaded.path) for o in options]
    found, out, err = run(*words, "--out", tmp_path / "f.safetensors", capsys=capsys)
    assert found == code, err
    assert message in " ".join(err.split())
    assert "Traceback" not in out + err
    assert not (tmp_path / "f.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("f.npz", 2, "f.npz: embeddings are written as .safetensors; name the file f.safetensors"),
        ("folder.safetensors", 1, "folder.safetensors: Is a directory; choose another place"),
        ("file/f.safetensors", 1, "file: File exists; choose another place"),
    ],
)
def test_a_file_that_cannot_be_written_is_noticed_at_once(tmp_path, name, code, message, capsys):
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "file").touch()
    found, _, err = run("no set", "--model", "no model", "--out", tmp_path / name, capsys=capsys)
    assert found == code
    assert message in " ".join(err.split())


def test_broken_images_can_be_left_out(manifest, loaded, tmp_path, capsys):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes((manifest.parent / "rgb" / "9_1_0.png").read_bytes())
    (tmp_path / "c.png").write_bytes(b"no image")
    out = tmp_path / "f.safetensors"
    code, _, err = run(tmp_path, "--model", loaded.path, "--out", out, capsys=capsys)
    assert code == 1
    assert "c.png" in err
    assert "--skip-broken" in err
    code, text, err = run(tmp_path, "--model", loaded.path, "--out", out, "--skip-broken", capsys=capsys)
    assert code == 0, err
    assert "1 of 3 samples left out" in " ".join(text.split())
    assert read_embeddings(out).paths == ({"rgb": "a.png"}, {"rgb": "b.png"})


def test_files_that_are_no_embeddings_are_refused(manifest, loaded, tmp_path, capsys):
    out = tmp_path / "f.safetensors"
    assert run(manifest, "--model", loaded.path, "--out", out, "--split", "query", capsys=capsys)[0] == 0
    good = bytearray(out.read_bytes())
    for damage, message in (
        (good[: len(good) // 2], "not a readable safetensors file"),
        (good[:-1] + bytes([good[-1] ^ 1]), "does not match its checksum"),
    ):
        out.write_bytes(damage)
        with pytest.raises(DataError, match=message):
            read_embeddings(out)
    with pytest.raises(DataError, match="not a file of embeddings"):
        read_embeddings(loaded.path)
    with pytest.raises(DataError, match="no such file"):
        read_embeddings(tmp_path / "gone.safetensors")
    features = np.zeros((2, 3), np.float32)
    for header, message in (
        ({"format": 99, "slimreid": "9.9"}, "newer; update SlimReID"),
        ({"format": 2}, "of an older format"),
        ({"format": 3}, "header is damaged"),
        ("{", "header is damaged"),
    ):
        text = header if isinstance(header, str) else json.dumps(header)
        save_file({"features": features}, out, metadata={"slimreid": text})
        with pytest.raises(DataError, match=message):
            read_embeddings(out)


def test_features_replace_nothing_else_unasked(manifest, loaded, tmp_path, capsys):
    out = tmp_path / "f.safetensors"
    words = (manifest, "--model", loaded.path, "--out", out)
    assert run(*words, capsys=capsys)[0] == 0
    written = out.read_bytes()
    code, shown, _ = run(*words, capsys=capsys)
    assert code == 0
    assert "unchanged" in shown
    for other in (("--feature", "original"), ("--modalities", "rgb")):
        code, _, err = run(*words, *other, capsys=capsys)
        assert code == 1
        assert "--overwrite" in err
        assert out.read_bytes() == written
    assert run(*words, "--modalities", "rgb", "--overwrite", capsys=capsys)[0] == 0
    assert out.read_bytes() != written


def test_a_model_is_never_replaced_by_features(manifest, loaded, tmp_path, capsys):
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"weights")
    code, _, err = run(manifest, "--model", loaded.path, "--out", model, capsys=capsys)
    assert code == 1
    assert "model.safetensors exists" in err
    assert model.read_bytes() == b"weights"
