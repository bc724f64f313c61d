"""Loaded models."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import slimreid
from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError, ModelError
from slimreid.evaluation.reports.evaluate import evaluation_folder
from slimreid.gallery.gallery import Gallery
from slimreid.inference import load as loading
from slimreid.inference.load import resolve_model, shipped_models, shipped_name
from slimreid.inference.model_card import INT8_CARD_NAME
from slimreid.serve.service import open_service
from slimreid.serve.settings import Settings
from slimreid.training.loop import train
from slimreid.training.warm_start import source_card
from support.commands import run_command
from support.exported import write_exported_model
from support.runs import make_config, write_set
from support.without_extras import run_code

CLI = """
from pathlib import Path
from slimreid.inference import load as loading
loading.PRETRAINED = Path(sys.argv[1])
from slimreid.cli.app import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, transforms=replace(config.transforms, mean=(0.4, 0.5, 0.5))),
        lambda config: replace(config, data=replace(config.data, scaled_decode=True)),
        lambda config: replace(config, train=replace(config.train, precision="bf16")),
    ],
)
def test_the_fingerprint_of_features_follows_preprocessing_and_precision(trained_run, change):
    loaded = slimreid.load(trained_run)
    assert slimreid.load(trained_run).feature_fingerprint == loaded.feature_fingerprint
    changed = replace(loaded, card=replace(loaded.card, config=change(loaded.config)))
    assert changed.feature_fingerprint != loaded.feature_fingerprint
    longer = replace(loaded, card=replace(loaded.card, epoch=9))
    assert longer.feature_fingerprint == loaded.feature_fingerprint, "only what decides features counts"


def test_a_model_is_shown_in_one_line(trained_run, exported):
    trained = slimreid.load(trained_run)
    assert repr(trained) == (
        f"TrainedModel('{trained.path}', rgb+nir+tir, 32×16, {trained.sizes['both']} channels, fp32)"
    )
    assert repr(slimreid.load(exported)).startswith(f"ExportedModel('{exported}")
    assert "\n" not in repr(slimreid.load(exported))


def test_without_a_second_branch_both_are_compared_as_the_first(trained_run, tmp_path):
    manifest = trained_run.parent / "set" / "manifest.csv"
    train(
        make_config(manifest, "model.reduction=none", "model.fusion=none", "train.epochs=1"), tmp_path / "run"
    )
    loaded = slimreid.load(tmp_path / "run")
    table = loaded.similarity("both").impostors
    assert table is not None
    np.testing.assert_array_equal(table, loaded.similarity("original").impostors)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), val=False)


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A package with a built-in model, in two precisions, which here have the same graphs."""
    folder = write_exported_model(tmp_path / "package" / DEFAULT_MODEL)
    shutil.copy(folder / "model.json", folder / INT8_CARD_NAME)
    monkeypatch.setattr(loading, "PRETRAINED", folder.parent)
    return folder.parent


def test_a_name_means_the_model_of_the_package(models, data):
    assert list(shipped_models()) == ["people-tiny", "people-tiny-int8"]
    image = data.parent / "rgb" / "9_1_0.png"
    named, by_path = slimreid.load("people-tiny"), slimreid.load(models / "people-tiny")
    np.testing.assert_array_equal(named.embed({"rgb": image}), by_path.embed({"rgb": image}))
    np.testing.assert_array_equal(slimreid.load().embed({"rgb": image}), by_path.embed({"rgb": image}))
    assert slimreid.load("people-tiny-int8").path.name == INT8_CARD_NAME
    assert shipped_name(slimreid.load("people-tiny-int8").path) == "people-tiny-int8"
    assert shipped_name(named.path) == shipped_name(by_path.path) == "people-tiny"


def test_a_model_of_the_user_wins_over_a_name_but_an_empty_folder_does_not(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people-tiny").mkdir()
    assert shipped_name(resolve_model("people-tiny")) == "people-tiny"
    write_exported_model(tmp_path / "people-tiny")
    assert shipped_name(resolve_model("people-tiny").resolve()) is None


def test_a_wrong_name_and_a_missing_model_are_said(models, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match=r"peple-tiny: no such model; did you mean 'people-tiny'\?"):
        slimreid.load("peple-tiny")
    monkeypatch.setattr(loading, "PRETRAINED", tmp_path / "none")
    for name in ("people-tiny", "people-tiny-int8"):
        with pytest.raises(ModelError, match=f"{name}: this installation lacks the built-in model"):
            slimreid.load(name)
    with pytest.raises(ModelError, match=r"nothing: no such model; give a model\.safetensors"):
        slimreid.load("nothing")


def test_torch_does_not_run_it(models):
    with pytest.raises(ModelError, match="an exported model, which torch does not run"):
        slimreid.export("people-tiny", models / "again")
    with pytest.raises(ConfigError, match=r"train\.teacher: .*an exported model, which torch does not run"):
        source_card("people-tiny", "train.teacher")


def test_nothing_is_written_into_the_package(models):
    assert evaluation_folder(resolve_model("people-tiny")).as_posix() == "runs/people-tiny/evaluation"
    int8 = evaluation_folder(resolve_model("people-tiny-int8"))
    assert int8.as_posix() == "runs/people-tiny-int8/evaluation"


def test_it_is_what_search_embed_and_galleries_use_without_torch(models, data, tmp_path):
    query = str(data.parent / "rgb" / "9_1_0.png")

    def run(*words: str) -> str:
        done = run_code(CLI, str(models), *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    by_folder = json.loads(run("search", query, "--in", str(data.parent), "--json"))
    assert len(by_folder[0]["hits"]) == 10
    assert "model: people-tiny" in run("search", query, "--in", str(data.parent))
    run("embed", str(data), "--out", "f.safetensors")
    by_file = json.loads(run("search", query, "--in", "f.safetensors", "--json"))
    first, second = ([hit["similarity"] for hit in found[0]["hits"]] for found in (by_folder, by_file))
    assert first == pytest.approx(second)


def test_a_gallery_keeps_the_name(models, data, tmp_path, capsys):
    place = str(tmp_path / "site.gallery")
    code, _, err = run_command("gallery", "create", place, capsys=capsys)
    assert code == 0, err
    code, out, err = run_command("gallery", "enrol", place, data.parent, "--split", "query", capsys=capsys)
    assert code == 0, err
    with Gallery(place) as gallery:
        assert gallery.info.path == "people-tiny"
        assert len(gallery) == 12
        (answer,) = gallery.search({"rgb": data.parent / "rgb" / "9_1_0.png"}, k=1)
        assert answer.matches[0].row.identity == "id9"
    service = open_service(place, None, Settings(tmp_path / "state"))
    assert shipped_name(service.model.path) == "people-tiny"
    service.stop()
    with Gallery.create(tmp_path / "other.gallery") as made:
        assert made.info.path == "people-tiny"
