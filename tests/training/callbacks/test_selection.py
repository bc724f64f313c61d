"""The choice of patches during training, as it is written down."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from slimreid.data.loader import eval_loader, open_manifest
from slimreid.errors import ConfigError, TrainingError
from slimreid.inference.load import load
from slimreid.runs.folder import RunFolder
from slimreid.runs.history import selection_summary
from slimreid.training import step
from slimreid.training.callbacks.selection import score_parameters
from slimreid.training.loop import train
from support.runs import BATCHES, make_config, write_set


def write_masks(manifest):
    """The upper half of every image is object."""
    folder = manifest.parent / "masks"
    folder.mkdir()
    mask = np.zeros((32, 16), dtype=np.uint8)
    mask[:16] = 255
    for path in (manifest.parent / "rgb").iterdir():
        Image.fromarray(mask).save(folder / path.name)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run that was watched: its folder, manifest and the norms that the optimizer was given."""
    folder = tmp_path_factory.mktemp("watched")
    manifest = write_set(folder / "set", missing=True)
    write_masks(manifest)
    norms = []
    update = step.Updater.update

    def noted(updater):
        model = updater.module.model
        norms.append(sum(float(p.grad.square().sum()) for p in score_parameters(model)) ** 0.5)
        update(updater)

    patch = pytest.MonkeyPatch()
    patch.setattr(step.Updater, "update", noted)
    train(make_config(manifest, "train.watch_selection=true"), folder / "run")
    patch.undo()
    return folder / "run", manifest, norms


def test_one_row_per_epoch_and_one_before(watched):
    run, _, norms = watched
    rows = RunFolder(run).selection()
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [len(row["gradient"]) for row in rows] == [0, BATCHES, BATCHES]
    assert [n for row in rows for n in row["gradient"]] == pytest.approx(norms, rel=1e-5)
    for row in rows:
        (stage,) = row["stages"]
        assert stage["label"] == "kept"
        assert stage["kept_share"] == 0.5
        assert stage["chance"] == pytest.approx(0.5)
        # K is half of the patches and the object is half of the image, so both shares are the same.
        assert stage["on_object"] == pytest.approx(stage["recall"])
        assert set(stage["by_modality"]) == {"rgb", "nir", "tir"}
    assert rows[0]["stages"][0]["same"] is None
    assert all(0 < row["stages"][0]["same"] <= 1 for row in rows[1:])


def test_the_last_row_is_the_choice_of_the_trained_model(watched):
    run, _, _ = watched
    last = RunFolder(run).selection()[-1]
    loaded = load(run / "checkpoints" / "epoch_0002")
    config = loaded.config
    dataset = eval_loader(config, ("val",), open_manifest(config)).dataset
    with torch.no_grad():
        output = loaded.model.eval()(
            dataset.collate([dataset[i] for i in range(len(dataset))]), with_reduced=True
        )
    index = output.reduced.selection.index
    names = [next(iter(sample.images.values())).path for sample in dataset.samples]
    assert len(last["samples"]) == 4
    for shown in last["samples"]:
        i = names.index(next(iter(shown["images"].values())))
        for name, stages in shown["kept"].items():
            assert stages == [sorted(index[i, loaded.modalities.index(name)].tolist())]
        assert set(shown["kept"]) == set(shown["images"]), "absent modalities are left out"


def test_watching_changes_nothing_and_a_resumed_run_writes_the_same(watched, tmp_path, monkeypatch):
    run, manifest, _ = watched
    train(make_config(manifest), tmp_path / "plain")
    assert (tmp_path / "plain" / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    original = step.Updater.update

    def broken(updater):
        original(updater)
        counted.append(1)
        if len(counted) == BATCHES + 2:
            raise TrainingError("stopped")

    counted = []
    monkeypatch.setattr(step.Updater, "update", broken)
    config = make_config(manifest, "train.watch_selection=true")
    with pytest.raises(TrainingError, match="stopped"):
        train(config, tmp_path / "again")
    cut = RunFolder(tmp_path / "again").selection()
    assert cut[-1]["partial"]
    assert len(cut[-1]["gradient"]) == 2
    assert "partial" not in selection_summary(cut)
    monkeypatch.undo()
    train(config, tmp_path / "again", "auto")
    assert (tmp_path / "again" / "selection.jsonl").read_text() == (run / "selection.jsonl").read_text()


def test_reduction_in_the_backbone_has_a_figure_per_stage_and_data_without_masks_none_of_the_object(tmp_path):
    manifest = write_set(tmp_path / "set")
    options = (
        "model.reduction=in_backbone",
        "model.in_backbone.score_terms=[self]",
        "train.epochs=1",
        "optim.warmup_epochs=0",
    )
    train(make_config(manifest, "train.watch_selection=true", *options), tmp_path / "run")
    rows = RunFolder(tmp_path / "run").selection()
    assert [stage["label"] for stage in rows[-1]["stages"]] == ["block 2", "block 3"]
    assert "on_object" not in rows[-1]["stages"][0]
    assert rows[-1]["stages"][0]["kept_share"] > rows[-1]["stages"][1]["kept_share"]
    assert rows[-1]["gradient"] == [], "nothing of the score is learned"
    summary = selection_summary(rows)
    assert summary["on_object"] == [None, None]
    assert summary["gradient"] == [None, None]


def test_there_must_be_something_to_watch(tmp_path):
    with pytest.raises(ConfigError, match="selects nothing"):
        make_config(
            tmp_path / "m.csv", "train.watch_selection=true", "model.reduction=none", "model.fusion=none"
        )
