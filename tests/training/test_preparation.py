"""Options are fitted to the data, and a run can be used from anywhere."""

import logging
from pathlib import Path

import pytest

import slimreid
from slimreid.config.files import load_config
from slimreid.data.loader import open_manifest
from slimreid.errors import ConfigError
from slimreid.runs.measure import fresh_evaluation
from slimreid.training.loop import train
from slimreid.training.preparation import fitted
from support.runs import make_config, write_set

ONE = ("train.epochs=1", "optim.warmup_epochs=0")


@pytest.mark.parametrize(
    ("option", "key", "value", "words"),
    [
        ("batch.num_ids=64", ("batch", "num_ids"), 6, "batch.num_ids 64 is more than the 6 training"),
        ("optim.warmup_epochs=2", ("optim", "warmup_epochs"), 1, "optim.warmup_epochs 2 leaves nothing"),
    ],
)
def test_what_does_not_fit_is_adapted_and_said(tmp_path, caplog, option, key, value, words):
    config = make_config(write_set(tmp_path / "set"), option)
    with caplog.at_level(logging.WARNING, "slimreid"):
        found = fitted(config, open_manifest(config))
    assert getattr(getattr(found, key[0]), key[1]) == value
    assert [words in record.getMessage() for record in caplog.records] == [True]
    assert fitted(found, open_manifest(config)) == found, "nothing is left to adapt"


def test_processes_share_an_adapted_batch_alike(tmp_path):
    config = make_config(write_set(tmp_path / "set"), "batch.num_ids=64")
    assert fitted(config, open_manifest(config), processes=4).batch.num_ids == 4


def test_one_identity_to_choose_on_chooses_nothing(tmp_path, caplog):
    manifest = write_set(tmp_path / "set")
    rows = [row for row in manifest.read_text().splitlines() if not row.startswith(("val,id7", "val,id8"))]
    manifest.write_text("\n".join(rows) + "\n")
    with caplog.at_level(logging.WARNING, "slimreid"):
        result = train(make_config(manifest), tmp_path / "run")
    assert (result["select_on"], result["selected_epoch"], result["best"]) == ("last", 2, None)
    assert sum("val split has one identity" in record.getMessage() for record in caplog.records) == 1
    assert train(make_config(manifest), tmp_path / "run", "auto") == result


def test_a_run_is_used_from_another_folder(tmp_path, monkeypatch):
    write_set(tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    train(make_config(Path("set/manifest.csv"), *ONE), "run")
    config = load_config([tmp_path / "run" / "config.yaml"])
    assert Path(config.data.manifest) == tmp_path / "set" / "manifest.csv"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fresh_evaluation(slimreid.load(tmp_path / "run")).scores.result.valid_queries == 12


@pytest.mark.parametrize("resume", ["never", "auto"])
@pytest.mark.parametrize("name", ["model.safetensors", "result.json", "config.yaml"])
def test_nothing_is_overwritten_that_was_there(tmp_path, resume, name):
    path = tmp_path / "run" / name
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(ConfigError, match=rf"{name} is there .*choose another --out"):
        train(make_config(write_set(tmp_path / "set"), *ONE), tmp_path / "run", resume)
    assert [p.name for p in path.parent.iterdir()] == [name]
    assert path.read_text() == "mine"
