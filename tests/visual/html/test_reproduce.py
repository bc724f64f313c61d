"""The commands at the end of a report lead to the same figures, typed in their order."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace

import pytest

from slimreid.cli.app import main
from slimreid.cli.parser import parse_words
from slimreid.data.manifest import read_manifest
from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.generate import make_world
from slimreid.evaluation import KReciprocal
from slimreid.evaluation.reports.evaluate import EvaluationOptions, evaluate_model, read_evaluation
from slimreid.training.loop import train
from slimreid.visual.html.reproduce import again_commands
from slimreid.visual.html.run import gather_run, run_names
from support.models import write_random_model
from support.runs import make_config

WORLD = SynthOptions(identities=9, cameras=2, images_per_camera=2, size=(32, 16), seed=3, difficulty=0.25)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A world in the folder one works in, with more people held out than usual."""
    monkeypatch.chdir(tmp_path)
    make_world(tmp_path / "w", WORLD, val_identities=0.5, workers=1)
    return tmp_path


def words_of(line):
    words = shlex.split(line)
    assert words[0] == "slimreid"
    return words[1:]


def test_typed_in_order_they_make_the_same_figures(world, capsys):
    config = make_config(world / "w", "batch.num_ids=2", "train.epochs=1", "optim.warmup_epochs=0")
    train(replace(config, data=replace(config.data, manifest="w")), world / "runs" / "a")
    run = gather_run(world / "runs" / "a", "a")
    lines = again_commands([run], "page.html")
    assert [" ".join(words_of(line)[:2]) for line in lines] == [
        "data synth", "train --config", "evaluate again/runs/a", "report again/runs/a",
    ]  # fmt: skip
    for line in lines[:-1]:
        assert main(words_of(line)) == 0, capsys.readouterr().err
    assert read_manifest(world / "again" / "data" / "w") == read_manifest(world / "w")
    found, before = read_evaluation(world / "again" / "runs" / "a" / "evaluation"), run.evaluation
    assert found.fingerprint == before.fingerprint, "the same weights"
    assert found.scores.result.map == before.scores.result.map
    texts = [json.dumps(evaluation.missing["both"].to_dict()) for evaluation in (found, before)]
    assert texts[0] == texts[1]
    report = parse_words(words_of(lines[-1])).options
    assert str(report.out) == "again/page.html"
    assert report.data is None
    assert run_names(report.models) == ["a"], "it is called as on the first page"
    assert again_commands([run], "page.html")[0].startswith("slimreid data synth again-2/data/w "), (
        "nothing that is there is written to"
    )


def test_a_run_begun_from_another_is_complete_from_nothing(world, capsys):
    """Its source is trained first, though the report is not about it, and no old folder is used."""
    options = ("batch.num_ids=2", "train.epochs=1", "optim.warmup_epochs=0")
    config = make_config(world / "w", *options)
    config = replace(config, data=replace(config.data, manifest="w"))
    train(config, world / "runs" / "source")
    begun = replace(config.train, init_from="runs/source", teacher="runs/source/model.safetensors")
    loss = replace(config.loss, distill_weight=1.0)
    train(replace(config, train=begun, loss=loss), world / "runs" / "b")
    run = gather_run(world / "runs" / "b", "b")
    lines = again_commands([run], "page.html")
    assert [words_of(line)[0] for line in lines] == ["data", "train", "train", "evaluate", "report"]
    assert lines[1] == (
        "slimreid train --config runs/source/config.yaml --data.manifest again/data/w --out again/runs/source"
    )
    assert lines[2] == (
        "slimreid train --config runs/b/config.yaml --data.manifest again/data/w "
        "--train.init_from again/runs/source --train.teacher again/runs/source --out again/runs/b"
    )
    for line in lines[:-1]:
        assert main(words_of(line)) == 0, capsys.readouterr().err
    found = read_evaluation(world / "again" / "runs" / "b" / "evaluation")
    assert found.fingerprint == run.evaluation.fingerprint, "the same weights"


def test_what_was_asked_for_is_asked_for_again(world):
    """A model file without its run, measured on a world that it was not trained on, in an unusual way."""
    shutil.copytree(world / "w", world / "other" / "w")
    loaded = write_random_model(world / "bare", world / "w")
    run = gather_run(world / "bare", "bare", world / "other" / "w")
    asked = evaluate_model(
        loaded,
        world / "other" / "w",
        EvaluationOptions(
            features="slimmed", missing=True, protocol="none", rerank=KReciprocal(k1=5, original_weight=0.5)
        ),
    )
    lines = again_commands([replace(run, evaluation=asked)], "page.html")
    assert [words_of(line)[0] for line in lines] == ["data", "evaluate", "report"], (
        "there is no config to train by"
    )
    assert lines[0].startswith("slimreid data synth again/data/w --identities 9 --cameras 2")
    assert lines[0].endswith("--size 32x16 --val-identities 0.5")
    assert lines[1] == (
        "slimreid evaluate bare --missing all --feature slimmed --protocol none --rerank --rerank-k1 5 "
        "--rerank-lambda 0.5 --data again/data/w"
    )
    assert lines[2] == "slimreid report bare --out again/page.html --data again/data/w"


def test_data_that_cannot_be_made_is_used_where_it_is(trained_run, tmp_path, monkeypatch):
    shutil.copytree(trained_run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    lines = again_commands([gather_run(tmp_path / "run", "run")], "page.html")
    assert lines == [
        "slimreid train --config run/config.yaml --out again/runs/run",
        "slimreid evaluate again/runs/run --missing all",
        "slimreid report again/runs/run --out again/page.html",
    ]


def test_a_world_with_an_unusual_test_share_is_not_promised(tmp_path, monkeypatch):
    """The command has no such option, so it would make other data."""
    monkeypatch.chdir(tmp_path)
    make_world(tmp_path / "w", replace(WORLD, test_share=0.6), workers=1)
    write_random_model(tmp_path / "bare", tmp_path / "w")
    run = gather_run(tmp_path / "bare", "bare", tmp_path / "w")
    lines = again_commands([replace(run, data=replace(run.data, own=False))], "page.html")
    assert not any("synth" in line for line in lines)
    assert lines[0].endswith("--data w/manifest.csv")


def test_a_run_that_began_from_another_is_made_from_nothing(world, capsys):
    """Also where the report is about the second run alone."""
    words = ["--data.manifest", "w", "--batch.num_ids", "2", "--batch.num_instances", "2"]
    words += ["--transforms.height", "32", "--transforms.width", "16", "--transforms.pad", "2"]
    words += ["--model.backbone", "nano", "--train.epochs", "1", "--optim.warmup_epochs", "0"]
    words += ["--data.workers", "0"]
    assert main(["train", "synthetic/baseline", *words, "--out", "runs/base"]) == 0
    follow = ["--train.init_from", "runs/base", "--train.teacher", "runs/base", "--loss.distill_weight", "1"]
    assert main(["train", "synthetic/baseline", *words, *follow, "--out", "runs/slim"]) == 0
    lines = again_commands([gather_run(world / "runs" / "slim", "slim")], "page.html")
    assert [words_of(line)[0] for line in lines] == ["data", "train", "train", "evaluate", "report"]
    assert not any("runs/base" in line.replace("again/runs/base", "") for line in lines)
    assert "runs/slim" not in " ".join(lines).replace("again/runs/slim", "")
    assert "--train.init_from again/runs/base --train.teacher again/runs/base" in lines[2]
    shutil.rmtree(world / "runs")
    shutil.rmtree(world / "w")
    for line in lines[:3]:
        assert main(words_of(line)) == 0, capsys.readouterr().err
    assert (world / "again" / "runs" / "slim" / "model.safetensors").is_file()
