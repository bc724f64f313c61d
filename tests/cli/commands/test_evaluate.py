"""`slimreid evaluate` as a person types it."""

import csv
import json
import re
from functools import partial

import numpy as np
import pytest

import slimreid.data.sample_reader as reader_module
from slimreid.errors import DataError
from slimreid.evaluation import KReciprocal
from slimreid.evaluation.reports.evaluate import read_evaluation
from slimreid.evaluation.reports.writing import sheets
from slimreid.inference.model_card import CHOSEN_ON_TEST
from support.commands import run_command
from support.models import write_random_model
from support.runs import write_set

run = partial(run_command, "evaluate")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    manifest = write_set(folder / "set", origin="real rgb, simulated nir/tir")
    return write_random_model(folder / "run", manifest, select_on="test").path.parent


def test_everything_is_printed_and_written(model, capsys, monkeypatch):
    code, out, err = run(model, "--missing", "all", "--rerank", capsys=capsys)
    assert code == 0, err
    folder = model / "evaluation"
    evaluation = read_evaluation(folder)
    markdown = (folder / "evaluation.md").read_text(encoding="utf-8")
    for text in (
        out,
        markdown,
        (folder / "evaluation.csv").read_text(),
        (folder / "evaluation.json").read_text(),
    ):
        assert "real rgb; simulated nir/tir" in text
    for text in (out, markdown):
        assert CHOSEN_ON_TEST in text
        assert "chosen on the test set" in text
        assert f"{100 * evaluation.scores.result.map:.1f}" in text
        assert (
            f"{100 * evaluation.scores.interval.low:.1f}–{100 * evaluation.scores.interval.high:.1f}" in text
        )
        for words in (
            "12 valid, 0 skipped",
            "mINP",
            "R-20",
            "re-ranked",
            "1e-4",
            "mAP per camera pair",
            "chance",
        ):
            assert words in text
    assert all(len(line) <= 80 for line in out.splitlines() if "│" in line)
    assert "…" not in out, "no table is too wide"
    for kind, matrix in evaluation.missing.items():
        assert f"mAP with missing modalities ({kind}" in markdown
        assert f"{100 * matrix.map[0, 6]:.1f}" in markdown

    reads = []
    real = reader_module.read_images
    monkeypatch.setattr(reader_module, "read_images", lambda *a: (reads.append(a), real(*a))[1])
    code, again, _ = run(model, "--missing", "all", "--rerank", capsys=capsys)
    assert code == 0
    assert again == out
    assert not reads, "the features of the first time were found"
    assert run(model, "--no-cache", "--feature", "both", "--out", model / "new", capsys=capsys)[0] == 0
    assert reads
    assert not list((model / "new").glob("features*"))


def test_the_csv_holds_every_figure_with_what_it_is_of(model, capsys, tmp_path):
    code, _, err = run(model, "--missing", "all", "--out", tmp_path, capsys=capsys)
    assert code == 0, err
    evaluation = read_evaluation(tmp_path)
    rows = list(csv.DictReader((tmp_path / "evaluation.csv").open(encoding="utf-8")))
    assert {row["select_on"] for row in rows} == {"test"}
    assert {row["origin"] for row in rows} == {evaluation.origin}

    def value(**wanted):
        (found,) = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
        return float(found["value"]) if found["value"] else None

    scores = evaluation.features["slimmed"]
    plain = {"feature": "slimmed", "ranking": "plain", "query": "rnt"}
    assert value(**plain, figure="map") == scores.result.map
    assert value(**plain, figure="rank20") == scores.result.rank(20)
    assert value(**plain, figure="map_high") == scores.interval.high
    assert value(**plain, figure="threshold@0.001") == scores.operating_points[1].threshold
    matrix = {"feature": "both", "ranking": "missing", "query": "r", "gallery": "rt", "figure": "map"}
    assert value(**matrix) == evaluation.missing["both"].map[0, 4]
    assert value(**{**matrix, "gallery": "nt"}) is None, "they share no modality"
    pair = {"feature": "both", "query": "camera 1", "gallery": "camera 1", "figure": "map"}
    assert value(**pair) is None, "a camera does not find in itself"


def test_options_of_reranking_count_and_are_told(model, capsys, tmp_path):
    options = ("--feature", "both", "--rerank", "--rerank-k1", 3, "--rerank-k2", 2, "--rerank-lambda", 0.9)
    code, out, err = run(model, *options, "--out", tmp_path, capsys=capsys)
    assert code == 0, err
    assert "k1 3, k2 2, λ 0.9" in out
    chosen = read_evaluation(tmp_path)
    assert chosen.rerank == KReciprocal(3, 2, 0.9)
    assert run(model, "--feature", "both", "--rerank", "--out", tmp_path, capsys=capsys)[0] == 0
    usual = read_evaluation(tmp_path)
    assert usual.rerank == KReciprocal()
    assert not np.allclose(usual.scores.reranked.top_score, chosen.scores.reranked.top_score)


def test_broken_files_can_be_left_out(capsys, tmp_path):
    manifest = write_set(tmp_path / "set", val=False)
    loaded = write_random_model(tmp_path / "run", manifest)
    (tmp_path / "set" / "nir" / "9_1_0.png").write_bytes(b"")
    code, _, err = run(loaded.path, capsys=capsys)
    assert code == 1
    assert "9_1_0.png" in err
    assert "--skip-broken" in err
    code, out, err = run(loaded.path, "--skip-broken", capsys=capsys)
    assert code == 0, err
    assert "2 rows left out for broken files" in out
    assert "11 valid" in out


def test_json_is_plain_and_on_the_scale_from_0_to_1(model, capsys, tmp_path):
    assert run(model, "--feature", "slimmed", "--out", tmp_path, capsys=capsys)[0] == 0
    text = (tmp_path / "evaluation.json").read_text()
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert list(values["features"]) == ["slimmed"]
    assert 0 < values["features"]["slimmed"]["map"] <= 1
    assert values["missing"] == {}
    assert text.count("\n") < 300, "rows of numbers are on one line each"


def test_markdown_tables_line_up(model, capsys, tmp_path):
    assert run(model, "--missing", "all", "--out", tmp_path, capsys=capsys)[0] == 0
    evaluation = read_evaluation(tmp_path)
    for sheet in sheets(evaluation):
        assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    widths = [
        len(re.findall(r"(?<!\\)\|", line)) for line in (tmp_path / "evaluation.md").read_text().splitlines()
    ]
    assert widths.count(9) >= 6 * 9, "8 columns in 6 tables of missing modalities"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--feature", "fused"], 2, "the model has no feature 'fused'"),
        (["--feature", "fsed"], 2, "feature"),
        (["--protocol", "scene"], 1, "use protocol 'camera' where the data has none"),
        (["--data", "nothing.csv"], 1, "nothing.csv: no such manifest"),
        (["--device", "abacus"], 2, "device 'abacus' cannot be used"),
        (["--batch", "0"], 2, "must be at least 1"),
        (["--mising", "all"], 2, "did you mean 'missing'"),
        (["--rerank-k1", "5"], 2, "need --rerank"),
        (["--rerank", "--rerank-k2", "0"], 2, "k1 and k2 must be at least 1"),
        (["--rerank", "--rerank-lambda", "2"], 2, "original_weight must lie in [0, 1]"),
        (["--out", __file__], 1, "File exists"),
    ],
)
def test_wrong_usage_is_one_clear_message(model, options, code, message, capsys):
    found, out, err = run(model, *options, capsys=capsys)
    assert found == code
    assert message in " ".join(err.split())
    assert "Traceback" not in out + err


def test_a_place_without_a_model_is_named(tmp_path, capsys):
    code, _, err = run(tmp_path, capsys=capsys)
    assert code == 1
    assert "no model.safetensors in this folder" in " ".join(err.split())


def test_thresholds_of_one_site_are_applied_to_another(model, capsys, tmp_path):
    assert run(model, "--out", tmp_path / "here", "--no-cache", capsys=capsys)[0] == 0
    chosen = read_evaluation(tmp_path / "here").features["both"].operating_points[0]
    other = write_set(tmp_path / "other", missing=True)
    words = ("--data", other, "--out", tmp_path / "there", "--threshold", tmp_path / "here", "0.5", "rt=0.25")
    code, out, err = run(model, *words, capsys=capsys)
    assert code == 0, err
    assert "given thresholds, applied to this data (both)" in out
    rates = [r for r in read_evaluation(tmp_path / "there").thresholds if r.kind == "both"]
    assert [(r.threshold, r.chosen_rate) for r in (rates[0], *rates[-2:])] == [
        (chosen.threshold, 0.01),
        (0.5, None),
        (0.25, None),
    ]
    assert rates[-1].query == rates[-1].gallery == ("rgb", "tir")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("x=1", "'x' is not a set of modalities"),
        ("nan", "neither a number"),
        ("nowhere", "nor an existing evaluation"),
        ("r/n/t=1", "name one subset, or query/gallery"),
        ("OTHER", "an evaluation of other weights"),
        ("PART", "no threshold for rgb+nir+tir"),
    ],
)
def test_a_wrong_threshold_is_explained(model, word, message, capsys, tmp_path):
    if word in ("OTHER", "PART"):
        assert run(model, "--out", tmp_path, "--no-cache", capsys=capsys)[0] == 0
        path = tmp_path / "evaluation.json"
        values = json.loads(path.read_text())
        if word == "OTHER":
            values["fingerprint"] = "0" * 64
        else:
            values["modalities"] = ["rgb"]
        path.write_text(json.dumps(values))
        word = str(path)
    code, _, err = run(model, "--threshold", word, capsys=capsys)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("part", -1),
        ("part", 10**30),
        ("protocol", "x"),
        ("cameras", None),
        ("modalities", 3),
        ("features", {}),
    ],
)
def test_a_damaged_evaluation_is_made_again(model, key, value, tmp_path, capsys):
    assert run(model, "--feature", "both", "--out", tmp_path, "--no-cache", capsys=capsys)[0] == 0
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(DataError, match=r"evaluation\.json: damaged"):
        read_evaluation(path)
