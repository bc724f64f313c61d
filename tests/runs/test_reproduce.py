"""A run is trained again by what was typed, where that still means the same."""

from dataclasses import replace

import pytest

from slimreid.config.files import load_config, save_config
from slimreid.runs.folder import RunFolder
from slimreid.runs.reproduce import take_apart, train_words
from slimreid.runs.starts import DataSource, Surroundings, new_start, write_starts

WHERE = Surroundings(1, 1, "2", "cpu")


def make_run(folder, *words, **train):
    """A run as `slimreid train synthetic/baseline` with these words would begin it."""
    typed = take_apart(["train", "synthetic/baseline", *words])
    config = load_config(typed.files, [f"{key}={text}" for key, text in typed.options.items()])
    config = replace(config, train=replace(config.train, **train))
    save_config(config, folder)
    start = new_start(["train", "synthetic/baseline", *words], 0, WHERE, DataSource("rows"), {})
    write_starts(folder / "run.json", 0, [start])
    return RunFolder(folder)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_typed_options_stay_and_places_change(tmp_path):
    words = ["--train.epochs", "3", "--seed=5", "--data.manifest", "w", "--out", "runs/a", "--resume", "auto"]
    run = make_run(tmp_path / "a", *words)
    assert train_words(run, {"data.manifest": "again/w"}, "again/a") == [
        "train", "synthetic/baseline", "--train.epochs", "3", "--seed", "5",
        "--data.manifest", "again/w", "--out", "again/a",
    ]  # fmt: skip


def test_a_command_that_means_something_else_now_is_not_used(tmp_path):
    run = make_run(tmp_path / "a", "--data.manifest", "w", epochs=7)
    assert train_words(run, {}, "b") == ["train", "--config", "a/config.yaml", "--out", "b"]
    (tmp_path / "a" / "run.json").unlink()
    assert train_words(run, {}, "b") == ["train", "--config", "a/config.yaml", "--out", "b"]


@pytest.mark.parametrize(
    "command", [[], ["evaluate", "run"], ["train", "--demo-config", "old.yml"], ["train", "x", "--lr", "1"]]
)
def test_other_commands_are_not_taken_apart(command):
    assert take_apart(command) is None
