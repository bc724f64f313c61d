"""Commands that take a trained model take an exported one too."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

from slimreid.cli.app import main
from slimreid.evaluation.reports.evaluate import read_evaluation
from support.exported import write_exported_model
from support.runs import write_set


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return write_exported_model(folder / "model", write_set(folder / "set"))


def test_evaluate(model, capsys):
    assert main(["evaluate", str(model), "--missing", "all"]) == 0
    evaluation = read_evaluation(model / "evaluation")
    assert set(evaluation.features) == {"original", "slimmed", "both"}
    assert 0 < evaluation.scores.result.map <= 1
    assert len(evaluation.missing["both"].subsets) == 7
    shown = f"{100 * evaluation.scores.result.map:.1f}"
    assert shown in capsys.readouterr().out


def test_compare_with_a_trained_model(model, trained_run, tmp_path, capsys):
    out = tmp_path / "table.json"
    words = [str(trained_run), str(model), "--repeats", "1", "--batch", "2", "--samples", "50"]
    assert main(["compare", *words, "--out", str(out)]) == 0
    first, second = json.loads(out.read_text())["rows"]
    assert first["gflops"] == second["gflops"], "one design"
    assert second["images_per_second"] > 0
    assert capsys.readouterr().out


def test_show_draws_the_rank_list_alone(model, tmp_path, capsys):
    assert main(["show", str(model), "--rank", "--out", str(tmp_path / "p.png")]) == 0
    assert "no kept patches: an exported model does not report them" in capsys.readouterr().out
    assert not (tmp_path / "p.png").exists()
    with Image.open(tmp_path / "p-rank.png") as picture:
        assert min(picture.size) > 50
    assert main(["show", str(model), "--out", str(tmp_path / "q.png")]) == 2
    assert "give the run it came from, or add --rank" in capsys.readouterr().err


def test_profile(model, tmp_path, capsys):
    out = tmp_path / "p.json"
    words = ["--batch-sizes", "1,2", "--repeats", "2", "--threads", "1", "--out", str(out)]
    assert main(["profile", str(model), *words]) == 0
    found = json.loads(out.read_text())
    assert [row["batch"] for row in found["batches"]] == [1, 2]
    assert all(row["p50"] > 0 and row["peak_bytes"] is None for row in found["batches"])
    assert (found["engine"], found["precision"], found["threads"]) == ("onnxruntime", "float32", 1)
    assert "onnxruntime float32, 1 thread(s)" in capsys.readouterr().out
    assert main(["profile", str(model), "--set", "model.stride=[8,8]"]) == 2
    assert main(["profile", str(model), "--device", "cuda"]) == 2


def test_embed_and_search_and_a_gallery_beside_a_gpu(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("cuda"))
    images, features = model.parent / "set", tmp_path / "f.safetensors"
    words = ["embed", str(images), "--modalities", "rgb", "--model", str(model), "--out", str(features)]
    assert main(words) == 0
    query = str(images / "rgb" / "9_1_0.png")
    capsys.readouterr()
    assert main(["search", query, "--in", str(features), "--model", str(model), "--top", "1", "--json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)[0]["hits"]
    assert 0.9 < first["similarity"] <= 1
    people = str(tmp_path / "people.gallery")
    assert main(["gallery", "create", people, "--model", str(model)]) == 0
    assert main(["gallery", "enrol", people, str(images), "--split", "gallery"]) == 0
    capsys.readouterr()
    assert main(["gallery", "search", people, query, "--json", "--top", "3"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert [len(answer["matches"]), answer["modalities"]] == [3, ["rgb"]]
    assert main(["gallery", "search", people, query, "--device", "cuda"]) == 2
    assert "an exported model runs on the CPU" in capsys.readouterr().err


def test_report_asks_for_the_run(model, tmp_path, capsys):
    assert main(["report", str(model), "--out", str(tmp_path / "r.html")]) == 1
    assert "an exported model, which torch does not run; give the run it came from" in capsys.readouterr().err
