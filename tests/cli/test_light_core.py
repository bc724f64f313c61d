"""`pip install slimreid` without extras: exported models embed and search; the rest says what to install."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import slimreid
from slimreid.extras import EXTRA_OF, MissingExtraError, explain_missing, missing_extra
from slimreid.inference.embedding_sets.files import read_embeddings
from support.exported import write_exported_model
from support.runs import write_set
from support.without_extras import run_code, run_command

EMBED = """
import slimreid, json
loaded = slimreid.load(sys.argv[1])
features = loaded.embed(json.loads(sys.argv[2]))
scores = loaded.similarity()(features, features)
print(json.dumps([features.tolist(), scores.tolist()]))
print([name for name in EXTRA_OF if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), val=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory, data):
    return write_exported_model(tmp_path_factory.mktemp("exported"), data)


def test_an_exported_model_embeds_and_compares_without_torch(model, data):
    shown = [{"rgb": str(data.parent / "rgb" / "9_1_0.png")}, {"tir": str(data.parent / "tir" / "9_1_1.png")}]
    done = run_code(EMBED, str(model), json.dumps(shown))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]\n"
    features, scores = map(np.array, json.loads(done.stdout))
    here = slimreid.load(model)
    np.testing.assert_array_equal(features.astype(np.float32), here.embed(shown))
    np.testing.assert_allclose(scores, here.similarity()(features, features), atol=1e-6)


def test_embed_and_search_run_without_torch(model, data, tmp_path):
    out = tmp_path / "f.safetensors"
    done = run_command("embed", str(data), "--model", str(model), "--out", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(read_embeddings(out)) > 0
    query = str(data.parent / "rgb" / "9_1_0.png")
    found = []
    for place in (out, data.parent):
        words = ("search", query, "--in", str(place), "--model", str(model), "--threads", "1", "--json")
        done = run_command(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)[0]["hits"])
    assert len(found[0]) == 10
    assert [hit["similarity"] for hit in found[0]] == pytest.approx([hit["similarity"] for hit in found[1]])
    shutil.copytree(model, tmp_path / "runs" / "mine")
    done = run_command("search", query, "--in", str(out), "--json", cwd=tmp_path)  # finds the model itself
    assert json.loads(done.stdout)[0]["hits"] == found[0], done.stderr
    done = run_command("data", "check", str(data), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["train", "synthetic/sdtps"],
        ["evaluate", "MODEL"],
        ["data", "synth", "world"],
        ["search", "a.png", "--in", ".", "--model", "MODEL", "--picture", "p.png"],
    ],
    ids=lambda words: words[0],
)
def test_what_needs_torch_says_how_to_get_it(words, model, tmp_path):
    done = run_command(*(str(model) if word == "MODEL" else word for word in words), cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: this needs ")
    assert "which is not installed: pip install 'slimreid[train]'" in line
    assert ("scipy" in line) == line.endswith(", or without torch 'slimreid[gallery]'")


def test_a_trained_model_says_so_too(trained_run, tmp_path):
    done = run_command("embed", ".", "--model", str(trained_run), "--out", "f.safetensors", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: this needs torch, which is not installed: pip install 'slimreid[train]'\n"


@pytest.mark.parametrize(("module", "extra"), EXTRA_OF.items())
def test_every_module_names_its_extra(module, extra):
    with (
        pytest.raises(MissingExtraError, match=rf"needs {module}, .*'slimreid\[{extra}\]'"),
        explain_missing(),
    ):
        raise ModuleNotFoundError(f"No module named '{module}.x'", name=f"{module}.x")


def test_other_failed_imports_are_not_explained_away():
    assert missing_extra(ModuleNotFoundError("No module named 'x'", name="x")) is None
    assert missing_extra(ImportError("cannot import name 'x' from 'torch'", name="torch")) is None
    with pytest.raises(ModuleNotFoundError), explain_missing():
        raise ModuleNotFoundError("No module named 'x'", name="x")
