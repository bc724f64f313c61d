import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import slimreid
from slimreid.config import Config
from slimreid.data.loader import eval_loader
from slimreid.errors import ModelError, TrainingError
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import ModelCard
from slimreid.inference.trained_model import fingerprint, read_model, write_model
from slimreid.runs.folder import RunFolder
from slimreid.runs.starts import Surroundings
from slimreid.training.checkpoint import store as module
from slimreid.training.checkpoint.state import (
    Best,
    Checkpoint,
    FileMark,
    RunState,
    flatten_optimizer,
    restore_optimizer,
)
from slimreid.training.checkpoint.store import CheckpointStore, read_checkpoint
from slimreid.training.loop import train
from support.models import write_with_header
from support.runs import full_disk, make_config, write_set


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with a moving average."""
    folder = tmp_path_factory.mktemp("run")
    manifest = write_set(folder / "set", origin="real rgb; simulated nir/tir")
    config = make_config(manifest, "optim.ema=0.5", "model.camera_embedding=true")
    train(config, folder / "r")
    return folder / "r", config


def small_state(epoch, best=None, kept=()):
    where = Surroundings(1, 1, "2", "cpu")
    chosen = Best(best, 0.5, "val") if best else None
    return RunState(epoch, 3 * epoch, {}, "", where, FileMark(), chosen, list(kept))


def small_save(store, epoch, best=None, kept=()):
    card = ModelCard(Config(), ("rgb",), ("a", "b"), ("1",), epoch, "val")
    weights = {"w": torch.full((3,), float(epoch))}
    return store.save(
        Checkpoint(small_state(epoch, best, kept), weights, {"optimizer.0.x": torch.ones(1)}), card
    )


def names(store):
    return {p.name: sorted(f.name for f in p.iterdir()) for p in store.folder.iterdir() if p.is_dir()}


WHOLE = ["model.safetensors", "state.json", "training.safetensors"]
LIGHT = ["model.safetensors", "state.json"]


def test_last_best_and_kept_stay_and_the_rest_goes(tmp_path):
    store = CheckpointStore(RunFolder(tmp_path))
    assert store.last() is None
    for epoch in (1, 2, 3):
        small_save(store, epoch, best=2 if epoch > 1 else 1)
        assert store.last() == store.path(epoch)
    assert names(store) == {"epoch_0002": LIGHT, "epoch_0003": WHOLE}
    small_save(store, 4, best=4, kept=[3, 4])
    assert names(store) == {"epoch_0002": LIGHT, "epoch_0003": WHOLE, "epoch_0004": WHOLE}, (
        "the best at the time of a kept checkpoint stays too"
    )
    small_save(store, 5, best=4, kept=[4])
    assert names(store) == {"epoch_0004": WHOLE, "epoch_0005": WHOLE}
    found = read_checkpoint(store.path(5))
    assert replace(found.state, files={}) == small_state(5, 4, [4])
    assert found.model["w"].tolist() == [5.0] * 3
    assert found.training["optimizer.0.x"].tolist() == [1.0]


@pytest.mark.parametrize("call", range(1, 8))
def test_a_failed_write_leaves_the_last_checkpoint_and_nothing_half_written(tmp_path, monkeypatch, call):
    store = CheckpointStore(RunFolder(tmp_path))
    small_save(store, 1)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    real = os.fsync
    monkeypatch.setattr(os, "fsync", full_disk(call))
    if call == 7:  # the index is in place already; only its folder could not be flushed
        with pytest.raises(OSError, match="No space"):
            small_save(store, 2)
        assert store.last() == store.path(2)
        return
    with pytest.raises(OSError, match="No space"):
        small_save(store, 2)
    assert store.last() == store.path(1)
    after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and "epoch_0002" not in str(p)}
    assert after == before
    monkeypatch.setattr(os, "fsync", real)
    small_save(store, 2)
    assert names(store) == {"epoch_0002": WHOLE}


def test_interrupted_removal_is_made_up_for(tmp_path, monkeypatch):
    store = CheckpointStore(RunFolder(tmp_path))
    small_save(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", lambda path, **_: None)
        small_save(store, 2)
    (store.folder / ".index.json.abcdefgh.tmp").write_text("torn")
    assert set(names(store)) == {"epoch_0001", "epoch_0002"}
    small_save(store, 3)
    assert names(store) == {"epoch_0003": WHOLE}
    assert sorted(p.name for p in store.folder.iterdir()) == ["epoch_0003", "index.json"]


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "fused"])
def test_optimizer_goes_on_exactly(kind):
    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
        groups = [{"params": net[0].parameters(), "lr": 0.1, "name": "a"}, {"params": net[1].parameters()}]
        optimizers = {
            "adam": lambda: torch.optim.Adam(groups, lr=1e-2, weight_decay=0.1),
            "adamw": lambda: torch.optim.AdamW(groups, lr=1e-2, amsgrad=True),
            "sgd": lambda: torch.optim.SGD(groups, lr=1e-2, momentum=0.9),
            "fused": lambda: torch.optim.Adam(groups, lr=1e-2, fused=True),
        }
        return net, optimizers[kind]()

    def learn(net, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            net(torch.full((2, 4), float(step))).square().sum().backward()
            optimizer.step()

    whole, optimizer = make()
    learn(whole, optimizer, range(3))
    tensors, plain = flatten_optimizer(optimizer)
    tensors = {name: value.clone() for name, value in tensors.items()}
    plain = json.loads(json.dumps(plain))
    weights = {name: value.clone() for name, value in whole.state_dict().items()}
    learn(whole, optimizer, range(3, 6))

    other, fresh = make()
    other.load_state_dict(weights)
    restore_optimizer(fresh, tensors, plain)
    assert fresh.param_groups[0]["name"] == "a"
    if kind != "sgd":
        assert fresh.param_groups[0]["betas"] == (0.9, 0.999)
    learn(other, fresh, range(3, 6))
    for a, b in zip(whole.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    stranger = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(TrainingError, match="belongs to other parameters"):
        restore_optimizer(stranger, tensors, plain)


def test_shared_file_has_all_that_loading_needs_and_no_optimizer(run):
    folder, config = run
    loaded = slimreid.load(folder)
    assert isinstance(loaded, LoadedModel)
    assert loaded.config == config
    assert loaded.modalities == ("rgb", "nir", "tir")
    assert loaded.identities == tuple(f"id{i}" for i in range(6))
    assert loaded.cameras == ("1", "2")
    assert loaded.card.origin == "real rgb; simulated nir/tir"
    assert (loaded.card.select_on, loaded.card.protocol) == ("val", "camera")
    assert loaded.fingerprint == fingerprint(loaded.model.state_dict())
    assert loaded.fingerprint == json.loads((folder / "result.json").read_text())["fingerprint"]
    assert not loaded.model.training
    size = sum(v.numel() * v.element_size() for v in loaded.model.state_dict().values())
    assert (folder / "model.safetensors").stat().st_size < 1.05 * size + 20_000
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "optim" in name or "exp_avg" in name]  # noqa: SIM118


def test_shared_weights_are_the_moving_average_and_training_goes_on_with_its_own(run):
    folder, _ = run
    last = folder / "checkpoints" / "epoch_0002"
    average, own = load_file(last / "model.safetensors"), load_file(last / "training.safetensors")
    key = "heads.original.classifier.weight"
    assert not torch.equal(average[key], own[f"weights.{key}"])
    assert own["updates"] == 6


def test_loaded_model_embeds_and_takes_the_test_batches(run):
    folder, config = run
    loaded = slimreid.load(folder / "model.safetensors")
    batch = next(iter(eval_loader(config, ["query"])))
    with torch.no_grad():
        features = loaded.model(batch).features["both"]
    assert features.shape == (5, 2 * 3 * 96)
    assert bool(features.isfinite().all())


def test_files_that_are_no_models_are_refused_by_name(run, tmp_path):
    folder, _ = run
    whole = (folder / "model.safetensors").read_bytes()
    path = tmp_path / "m.safetensors"
    with pytest.raises(ModelError, match="no such model"):
        slimreid.load(path)
    with pytest.raises(ModelError, match=r"no model\.safetensors in this folder"):
        slimreid.load(tmp_path)
    path.write_bytes(whole[:1000])
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        slimreid.load(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelError, match="does not match its checksum"):
        slimreid.load(path)
    save_file({"w": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match="without SlimReID's header"):
        slimreid.load(path)
    state, header = read_model(folder / "model.safetensors")
    write_with_header(path, state, header | {"format": 99})
    with pytest.raises(ModelError, match="which is newer"):
        slimreid.load(path)
    header["config"]["optim"]["speed"] = 3
    write_with_header(path, state, header)
    with pytest.raises(ModelError, match=r"unknown option 'optim\.speed'"):
        slimreid.load(path)


def test_weights_of_another_model_are_refused_by_key(run, tmp_path):
    folder, _ = run
    loaded = slimreid.load(folder)
    state = loaded.model.state_dict()
    state["extra"] = torch.zeros(1)
    del state["backbone.class_token"]
    state["backbone.patch_embed.bias"] = torch.zeros(7)
    write_model(tmp_path / "m.safetensors", state, loaded.card)
    with pytest.raises(ModelError) as caught:
        slimreid.load(tmp_path / "m.safetensors")
    for text in ("missing 'backbone.class_token'", "no place for 'extra'", "is (7,), not (96,)"):
        assert text in str(caught.value)


def test_fingerprint_sees_names_types_shapes_and_values_but_not_order():
    a, b = torch.arange(4.0), torch.zeros(0)
    expected = fingerprint({"a": a, "b": b})
    assert fingerprint({"b": b, "a": a}) == expected
    changes = [{"c": a, "b": b}, {"a": a.double(), "b": b}, {"a": a.view(2, 2), "b": b}, {"a": a + 1, "b": b}]
    assert len({fingerprint(c) for c in changes} | {expected}) == 5


def test_same_weights_give_the_same_bytes(tmp_path, run):
    folder, _ = run
    loaded = slimreid.load(folder)
    write_model(tmp_path / "m.safetensors", loaded.model.state_dict(), loaded.card, loaded.impostors)
    assert (tmp_path / "m.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_importing_the_package_is_light():
    code = "import sys, slimreid; assert 'torch' not in sys.modules; assert callable(slimreid.__getattr__)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        slimreid.lode  # noqa: B018
