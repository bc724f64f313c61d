"""Starting from a trained model: what is taken, what stays fresh, what is refused, what is recorded."""

import json
import logging

import pytest
import torch

from slimreid.backbones.layers import resample_positions
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.inference.trained_model import read_model
from slimreid.training.checkpoint.state import read_state
from slimreid.training.distributed.processes import Processes
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from slimreid.training.preparation import warn_of_slow_backbone
from slimreid.training.warm_start import take_weights
from support.models import write_random_model
from support.runs import make_config, write_set

LONE = Processes(0, 1, torch.device("cpu"))
SHORT = ("train.epochs=1", "optim.warmup_epochs=0", "train.threads=1")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("start") / "set")


def start(manifest, source, *options):
    """The model as training begins, and one built without the source."""
    config = make_config(manifest, f"train.init_from={source}", *options)
    model = Learner(config, train_loader(config), LONE).model
    fresh = make_config(manifest, *options)
    return model.state_dict(), Learner(fresh, train_loader(fresh), LONE).model.state_dict()


@pytest.mark.parametrize("heads", ["direct", "split_all"])
def test_a_model_with_token_reduction_starts_from_one_without(heads, manifest, tmp_path, caplog):
    options = ("model.reduction=none", "model.fusion=mean", f"model.heads={heads}")
    source = write_random_model(tmp_path / "base", manifest, *options, seed=5).path.parent
    theirs, _ = read_model(source / "model.safetensors")
    with caplog.at_level(logging.INFO, "slimreid"):
        ours, fresh = start(manifest, source, options[-1])
    for name, value in ours.items():
        old = name.replace("heads.slimmed", "heads.fused")
        expected = theirs[old] if old in theirs else fresh[name]
        assert torch.equal(value, expected), name
    (line,) = [r.getMessage() for r in caplog.records if "init_from" in r.getMessage()]
    taken = sum(name.replace("heads.slimmed", "heads.fused") in theirs for name in ours)
    assert f"{taken} of {len(ours)} tensors taken; fresh: after_backbone." in line
    assert line.endswith("not used: none")
    assert not any(name.startswith("after_backbone") for name in theirs)


def test_classifiers_need_the_same_identities_and_camera_embeddings_the_same_cameras(
    manifest, tmp_path, caplog
):
    options = ("model.reduction=none", "model.fusion=none", "model.camera_embedding=true")
    swapped = ("id1", "id0", "id2", "id3", "id4", "id5")
    changes = {"identities": swapped, "cameras": ("2", "1")}
    source = write_random_model(tmp_path / "a", manifest, *options, seed=5, **changes).path.parent
    theirs, _ = read_model(source / "model.safetensors")
    with caplog.at_level(logging.INFO, "slimreid"):
        ours, fresh = start(manifest, source, *options)
    kept = {"heads.original.classifier.weight", "backbone.camera_embedding"}
    for name, value in ours.items():
        assert torch.equal(value, fresh[name] if name in kept else theirs[name]), name
    assert "fresh: backbone.camera_embedding (1), heads.original.classifier (1)" in caplog.text


def test_what_joins_modalities_needs_the_same_ones(manifest, tmp_path):
    options = (
        "model.reduction=none",
        "model.fusion=hdm_atmoe",
        "model.global_local=true",
        "model.heads=split",
        "model.backbone=vit_tiny",
    )
    theirs = ("data.modalities=[rgb, nir]", *options)
    source = write_random_model(tmp_path / "a", manifest, *theirs, seed=5).path.parent
    theirs, _ = read_model(source / "model.safetensors")
    ours, fresh = start(manifest, source, "data.modalities=[rgb, tir]", *options)
    joint = ("hdm.", "moe.", "heads.fused.")
    assert any(
        name.startswith(joint) and theirs[name].shape == ours[name].shape for name in theirs if name in ours
    )
    for name, value in ours.items():
        expected = theirs[name] if name in theirs and not name.startswith(joint) else fresh[name]
        assert torch.equal(value, expected), name
    assert "global_local.rgb.reduce.weight" in theirs
    assert "heads.original_rgb.classifier.weight" in theirs


def test_positions_of_another_size_are_resampled(manifest, tmp_path):
    source = write_random_model(tmp_path / "a", manifest, "transforms.height=64", seed=5).path.parent
    theirs, _ = read_model(source / "model.safetensors")
    ours, _ = start(manifest, source)
    name = "backbone.position_embedding"
    assert theirs[name].shape != ours[name].shape
    assert torch.equal(ours[name], resample_positions(theirs[name], (8, 2), (4, 2), "bicubic"))


def test_a_backbone_of_which_nothing_fits_is_refused(manifest, tmp_path):
    source = write_random_model(tmp_path / "a", manifest, "model.backbone=vit_tiny").path.parent
    with pytest.raises(ConfigError, match=r"init_from .*: no weights of its backbone 'vit_tiny' fit"):
        start(manifest, source)


def test_take_weights_takes_everything_of_a_like_model(manifest, tmp_path):
    loaded = write_random_model(tmp_path / "a", manifest, seed=5)
    other = write_random_model(tmp_path / "b", manifest, seed=6)
    report = take_weights(
        other.model, loaded.model.state_dict(), loaded.card, loaded.identities, loaded.cameras
    )
    assert (report.fresh, report.unused) == ((), ())
    assert all(torch.equal(a, loaded.model.state_dict()[n]) for n, a in other.model.state_dict().items())


def test_it_wins_over_pretrained_weights_and_is_recorded(manifest, tmp_path, caplog):
    source = write_random_model(tmp_path / "base", manifest).path.parent
    _, header = read_model(source / "model.safetensors")
    options = (f"train.init_from={source}", "model.pretrained=not_there.pt", "optim.backbone_lr=1e-6")
    with caplog.at_level(logging.INFO, "slimreid"):
        result = train(make_config(manifest, *options, *SHORT), tmp_path / "run")
    assert "model.pretrained is not read: the weights come from train.init_from" in caplog.text
    assert "random weights" not in caplog.text, "the small rate is right for trained weights"
    sources = {"init_from": header["fingerprint"]}
    assert result["sources"] == sources
    assert json.loads((tmp_path / "run" / "run.json").read_text())["starts"][0]["sources"] == sources
    assert read_state(tmp_path / "run" / "checkpoints" / "epoch_0001").sources == sources


def test_a_random_backbone_with_a_small_rate_is_warned_of(manifest, caplog):
    warn_of_slow_backbone(make_config(manifest, "optim.backbone_lr=1e-6"))
    assert "give --model.pretrained or --train.init_from" in caplog.text


@pytest.mark.parametrize("option", ["init_from", "teacher"])
def test_what_is_no_model_is_refused_before_anything_is_written(manifest, tmp_path, option):
    weight = ["loss.distill_weight=1"] if option == "teacher" else []
    config = make_config(manifest, f"train.{option}={tmp_path / 'none'}", *weight)
    with pytest.raises(ConfigError, match=rf"train\.{option}: .*no such model"):
        train(config, tmp_path / "run")
    (tmp_path / "none").write_bytes(b"not a model")
    with pytest.raises(ConfigError, match=rf"train\.{option}: .*not a readable safetensors file"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
