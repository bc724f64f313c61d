"""`slimreid show`, as a user calls it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from slimreid.cli.app import main
from slimreid.config.model import SLIMMED
from slimreid.errors import DataError
from slimreid.evaluation import evaluate_retrieval
from slimreid.evaluation.query_gallery import retrieval_labels
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import extract_features
from slimreid.inference.load import load
from slimreid.inference.similarity import join_branches
from slimreid.visual.patches import sample_views
from slimreid.visual.patches.sample_views import open_sample, part_of, rank_sample
from support.models import write_random_model
from support.runs import write_set


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """Folders of models with random weights, made once per set of options."""
    manifest = write_set(tmp_path_factory.mktemp("data"), val=False)
    made = {}

    def make(*options):
        if options not in made:
            made[options] = write_random_model(tmp_path_factory.mktemp("run"), manifest, *options).path.parent
        return made[options]

    return make


@pytest.fixture
def run(model_of, tmp_path):
    """The default model, in a folder without pictures."""
    return shutil.copytree(model_of(), tmp_path / "run")


@pytest.fixture
def drawn(monkeypatch):
    """What was asked to be drawn, with a quick picture instead of the figure."""
    asked = []

    def draw(seen, look, token):
        asked.append((seen.name, seen.without, look.name, token))
        return Image.new("RGB", (4, 4))

    monkeypatch.setattr("slimreid.cli.commands.show.draw_sample", draw)
    return asked


def test_pictures_are_written_beside_the_model(run, capsys):
    assert main(["show", str(run), "--sample", "10_2_1", "--rank"]) == 0
    with (
        Image.open(run / "pictures" / "10_2_1.png") as kept,
        Image.open(run / "pictures" / "10_2_1-rank.png") as rank,
    ):
        assert kept.width > 1000
        assert rank.width > 500
    told = " ".join(capsys.readouterr().out.split())
    assert "kept patches:" in told
    assert "10_2_1-rank.png" in told


def test_samples_and_options_reach_the_picture(run, drawn, tmp_path):
    assert main(["show", str(run)]) == 0
    assert main(["show", str(run), "--sample", "10_2_1", "3", "--theme", "dark"]) == 0
    assert sorted(path.name for path in (run / "pictures").iterdir()) == [
        "10_2_1.png",
        "9_1_0.png",
        "9_2_1.png",
    ]
    one = [
        "--out",
        str(tmp_path / "one.png"),
        "--token",
        "2",
        "--without",
        "nir,tir",
        "--sample",
        "gallery:1",
    ]
    assert main(["show", str(run), *one]) == 0
    assert (tmp_path / "one.png").is_file()
    assert (
        main(["show", str(run), "--out", str(tmp_path / "deep" / "folder"), "--data", str(run / "set.csv")])
        == 1
    )
    assert main(["show", str(run), "--out", str(tmp_path / "deep" / "folder")]) == 0
    assert [path.name for path in (tmp_path / "deep" / "folder").iterdir()] == ["9_1_0.png"]
    assert drawn == [
        ("9_1_0", (), "light", None),
        ("10_2_1", (), "dark", None),
        ("9_2_1", (), "dark", None),
        ("9_1_1", ("nir", "tir"), "light", 2),
        ("9_1_0", (), "light", None),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "10_2_9"], "no sample '10_2_9'"),
        (["--sample", "99"], "no 99 among the query rows; they are 0 to 11"),
        (["--token", "77"], "--token 77 does not exist"),
        (["--without", "rnt"], "nothing is left"),
        (["--without", "xir"], "'xir' is not a set of modalities"),
        (["--sample", "train:1", "--rank"], "has no gallery to search"),
        (["--rank", "--feature", "fused"], "the model has no feature 'fused'"),
        (["--out", "a.jpg"], "pictures are .png"),
        (["--sample", "1", "2", "--out", "a.png"], "2 samples need a folder"),
        (["--data", "nowhere.csv"], "no such manifest"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_are_explained(run, options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", str(run), *options]) in (1, 2)
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (run / "pictures").exists(), "nothing is written before all is checked"


def test_a_model_without_token_reduction_says_so(model_of, capsys):
    run = model_of("model.reduction=none", "model.fusion=none")
    assert main(["show", str(run)]) == 2
    assert "has no token reduction (model.reduction: none)" in " ".join(capsys.readouterr().err.split())
    assert main(["show", str(run), "--rank", "--token", "1"]) == 2
    assert "no merged tokens" in " ".join(capsys.readouterr().err.split())
    assert main(["show", str(run), "--rank", "--feature", "original"]) == 0
    assert [path.name for path in (run / "pictures").iterdir()] == ["9_1_0-rank.png"]


def test_stages_in_the_backbone_have_a_view_each(model_of):
    options = ("model.reduction=in_backbone", "model.in_backbone.schedule=[[0.25, 0.5], [0.5, 0.25]]")
    loaded = load(model_of(*options))
    assert loaded.model.second == SLIMMED
    seen = open_sample(loaded, open_data(loaded), "10_1_0", "tir")
    rgb, nir, tir = seen.views()
    assert tir.image is None
    for view in (rgb, nir):
        first, second = view.stages
        assert [s.label for s in view.stages] == [
            f"block {s.block + 1}" for s in loaded.model.in_backbone.stages
        ]
        assert not (second.kept & ~first.kept).any(), "what was dropped does not come back"
        assert np.isnan(second.score).sum() == (~first.kept).sum()
        assert first.weights is None
        assert second.weights is None
    sample_views.draw_sample(seen)


def test_zeros_for_missing_modalities_are_shown_as_the_model_saw_them(model_of):
    loaded = load(model_of("model.missing=zeros", "model.after_backbone.score_terms=[learned, cross]"))
    seen = open_sample(loaded, open_data(loaded), "0", "nir")
    rgb, nir, _ = seen.views()
    assert nir.image.getcolors() == [(32 * 16, (128, 128, 128))]
    assert rgb.stages[0].terms["nir"] is not None


def test_the_rank_list_is_that_of_the_evaluation(run, monkeypatch):
    loaded = load(run)
    data = open_data(loaded)
    samples = data.manifest.select("query", "gallery")
    shown = []
    monkeypatch.setattr(sample_views, "draw_rank_lists", lambda lists, *_: shown.extend(lists))
    seen = open_sample(loaded, data, "5")
    rank_sample(loaded, data, seen, "slimmed")
    (features,) = extract_features(loaded, data).values()
    rows = {s: [i for i, x in enumerate(data.manifest.samples) if x.split == s] for s in ("query", "gallery")}
    labels = retrieval_labels(data.manifest.samples, rows["query"], rows["gallery"], "camera")
    sides = (features.get("slimmed", np.array(rows[s])) for s in ("query", "gallery"))
    result = evaluate_retrieval(*sides, labels)
    (found,) = shown
    assert [item.score for item in found.items] == pytest.approx(result.top_score[5].tolist(), abs=2e-3)
    assert [item.is_match for item in found.items] == result.top_is_match[5].tolist()
    assert f"AP {100 * result.average_precision[5]:.1f} · 2 correct matches" in found.title
    query = join_branches(seen.branches, "slimmed")
    assert np.allclose(query[0], features.get("slimmed", np.array(rows["query"]))[5], atol=1e-5)
    assert len(samples) == 24
    assert (run / "evaluation").is_dir(), "features are kept for the evaluation"


def test_training_samples_have_no_gallery(run):
    loaded = load(run)
    data = open_data(loaded)
    with pytest.raises(DataError, match="is a train sample"):
        part_of(data, open_sample(loaded, data, "train:0"))
    assert part_of(data, open_sample(loaded, data, "gallery:0")) == "test"
