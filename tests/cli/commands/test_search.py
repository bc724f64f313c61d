"""`slimreid search`: one photograph, a folder, an answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from slimreid.errors import ConfigError, DataError
from slimreid.inference import search as search_module
from slimreid.inference.load import load
from slimreid.inference.search import open_queries
from support.commands import run_command


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def found(*words, capsys):
    code, out, err = run_command("search", *words, "--json", capsys=capsys)
    assert code == 0, err
    return json.loads(out)


def test_the_most_similar_samples_come_first(trained_run, capsys):
    """The ranking is that of similarities computed one by one."""
    photos = trained_run.parent / "set"
    query = photos / "tir" / "9_1_0.png"
    (answer,) = found(
        query, "--in", photos / "manifest.csv", "--model", trained_run, "--top", 5, capsys=capsys
    )
    assert answer["query"] == {"tir": str(query)}
    hits = answer["hits"]
    assert [hit["rank"] for hit in hits] == [1, 2, 3, 4, 5]
    assert len({tuple(hit["paths"].values()) for hit in hits}) == 5, "no sample twice"
    model = load(trained_run)
    own = model.embed({"tir": str(query)})
    lines = (photos / "manifest.csv").read_text().splitlines()[1:]
    rows = sorted({tuple(line.split(",")[4:7]) for line in lines})
    scores = []
    for row in rows:  # one by one
        sample = {m: str(photos / path) for m, path in zip(("rgb", "nir", "tir"), row, strict=True)}
        if sample["tir"] != str(query):
            feature = model.embed(sample)
            scores.append(float(model.similarity()(own, feature, [[False, False, True]], [[True] * 3])[0, 0]))
    np.testing.assert_allclose([hit["similarity"] for hit in hits], sorted(scores)[::-1][:5], atol=1e-4)


def test_files_of_one_sample_are_one_query(trained_run, tmp_path):
    photos = trained_run.parent / "set"
    loaded = load(trained_run)
    for name in ("rgb", "tir"):
        shutil.copy(photos / name / "9_1_0.png", tmp_path / f"x_{name}.png")
    shutil.copy(photos / "rgb" / "9_1_1.png", tmp_path / "plain.png")
    words = [str(tmp_path / f"{name}.png") for name in ("x_rgb", "x_tir", "plain")]
    samples = open_queries(loaded, words).manifest.samples
    assert [sorted(sample.images) for sample in samples] == [["rgb", "tir"], ["rgb"]]
    folders = [str(photos / name / "9_1_0.png") for name in ("rgb", "nir", "tir")]
    assert [sorted(s.images) for s in open_queries(loaded, folders).manifest.samples] == [
        ["nir", "rgb", "tir"]
    ]
    assigned = [f"tir={words[2]}", f"rgb={words[0]}"]
    assert [sorted(s.images) for s in open_queries(loaded, assigned).manifest.samples] == [["rgb", "tir"]]
    assert list(open_queries(loaded, words[2:], "thermal").manifest.samples[0].images) == ["tir"]
    with pytest.raises(DataError, match="are both the rgb image of one sample"):
        open_queries(loaded, [words[0], words[0]])
    with pytest.raises(ConfigError, match="unknown modality 'depth'"):
        open_queries(loaded, [f"depth={words[2]}"])
    with pytest.raises(DataError, match=r"none\.png: no such image"):
        open_queries(loaded, ["none.png"])


def test_a_folder_is_embedded_once(trained_run, tmp_path, capsys, monkeypatch):
    photos = shutil.copytree(trained_run.parent / "set" / "rgb", tmp_path / "photos")
    words = [photos / "9_1_0.png", "--in", photos, "--model", trained_run, "--modality", "rgb"]
    first = found(*words, capsys=capsys)
    files = list((tmp_path / "cache").rglob("*.safetensors"))
    assert len(files) == 1
    before = files[0].stat().st_mtime_ns
    assert found(*words, capsys=capsys) == first
    assert files[0].stat().st_mtime_ns == before
    shutil.copy(photos / "9_1_0.png", photos / "9_2_0.png")
    assert found(*words, capsys=capsys)[0]["hits"][0]["paths"] == {"rgb": str(photos / "9_2_0.png")}
    assert files[0].stat().st_mtime_ns != before
    monkeypatch.setattr(search_module, "user_cache_folder", lambda: Path("/dev/null/no"))
    assert found(*words, capsys=capsys)


def test_embeddings_are_searched_by_the_model_that_made_them(trained_run, tmp_path, capsys, monkeypatch):
    photos = trained_run.parent / "set"
    out = tmp_path / "f.safetensors"
    embed = ["embed", photos, "--model", trained_run, "--out", out]
    assert run_command(*embed, capsys=capsys)[0] == 0
    query = photos / "rgb" / "9_1_0.png"
    by_file = found(query, "--in", out, "--model", trained_run, capsys=capsys)
    by_folder = found(query, "--in", photos, "--model", trained_run, capsys=capsys)
    assert [hit["paths"] for hit in by_file[0]["hits"]] == [hit["paths"] for hit in by_folder[0]["hits"]]
    monkeypatch.chdir(tmp_path)
    code, _, err = run_command("search", query, "--in", out, capsys=capsys)
    assert (code, "name it with --model" in err) == (2, True)
    shutil.copytree(trained_run, tmp_path / "runs" / "mine")
    code, printed, err = run_command("search", query, "--in", out, capsys=capsys)
    assert code == 0, err
    assert "model: runs/mine" in printed
    code, _, err = run_command("search", query, "--in", out, "--feature", "original", capsys=capsys)
    assert (code, "has the feature 'both', not 'original'" in err) == (1, True)


def test_the_answer_is_a_table_and_a_picture(trained_run, tmp_path, capsys):
    photos = trained_run.parent / "set"
    for name in ("found.png", "found.html"):
        words = [
            photos / "nir" / "9_1_0.png",
            "--in",
            photos,
            "--model",
            trained_run,
            "--modality",
            "rgb",
            "--picture",
            tmp_path / name,
        ]
        code, out, err = run_command("search", *words, "--top", 3, capsys=capsys)
        assert code == 0, err
        assert all(word in out for word in ("similarity", "identity", "camera", "among 48 samples", name))
        assert (tmp_path / name).stat().st_size > 1000


def test_samples_that_share_no_modality_are_no_answer(trained_run, tmp_path, capsys):
    photos = trained_run.parent / "set"
    shutil.copytree(photos / "tir", tmp_path / "mixed" / "tir")
    shutil.copytree(photos / "rgb", tmp_path / "mixed" / "rgb")
    for path in (tmp_path / "mixed" / "rgb").iterdir():
        if not path.name.startswith("9"):
            path.unlink()
    query = photos / "rgb" / "10_1_0.png"
    (answer,) = found(query, "--in", tmp_path / "mixed", "--model", trained_run, "--top", 50, capsys=capsys)
    assert len(answer["hits"]) == 4
    assert all("rgb" in hit["paths"] for hit in answer["hits"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a.png"], 2, "required: --in"),
        (["--in", "x"], 2, "required: IMAGE"),
        (["a.png", "--in", "x", "--top", "0"], 2, "--top must be at least 1"),
        (["a.png", "--in", "x", "--picture", "x.gif"], 2, "end its name in .png"),
    ],
)
def test_wrong_usage_is_one_clear_message(words, code, message, capsys):
    got, _, err = run_command("search", *words, capsys=capsys)
    assert (got, message in err) == (code, True), err
