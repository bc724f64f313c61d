"""Data that cannot be read and damaged files of a run end in a clear message, never in success."""

import json
import logging

import pytest
from safetensors.torch import save_file

import slimreid
from slimreid.config import Config, ModelConfig, OptimConfig
from slimreid.errors import ConfigError, DataError, ModelError, TrainingError
from slimreid.inference.trained_model import read_model
from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import StepReport
from slimreid.training.callbacks.files import TensorBoardFiles
from slimreid.training.checkpoint.state import read_state
from slimreid.training.checkpoint.store import CheckpointStore, read_checkpoint, remove_unfinished
from slimreid.training.distributed.failures import explained
from slimreid.training.loop import train
from slimreid.training.preparation import warn_of_slow_backbone
from support.runs import make_config, write_set

ONE = ("train.epochs=1", "optim.warmup_epochs=0")


def remove_training_images(folder, keep=()):
    for identity in range(6):
        for path in folder.glob(f"*/{identity}_*.png"):
            if path.stem not in keep:
                path.unlink()


def test_training_on_nothing_is_no_success(tmp_path):
    manifest = write_set(tmp_path / "set")
    remove_training_images(tmp_path / "set")
    config = make_config(manifest, *ONE, "data.on_error=skip")
    with pytest.raises(TrainingError, match=r"nothing was learned; 24 of 24 .* there is no checkpoint yet"):
        train(config, tmp_path / "r")
    assert not (tmp_path / "r" / "result.json").exists()


def test_single_samples_are_left_out_and_said(tmp_path, caplog):
    manifest = write_set(tmp_path / "set")
    remove_training_images(tmp_path / "set", keep=("0_1_0", "0_1_1", "0_2_0", "0_2_1"))
    config = make_config(manifest, *ONE, "data.on_error=skip")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(config, tmp_path / "r")
    said = [r.getMessage() for r in caplog.records if "batches left out" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("epoch 1: ")
    assert "of 3 batches left out" in said[0]


@pytest.fixture
def run(tmp_path):
    config = make_config(write_set(tmp_path / "set"), *ONE)
    train(config, tmp_path / "r")
    return config, tmp_path / "r"


@pytest.mark.parametrize("text", ["{", "[]", "{}", "\x00"])
def test_damaged_index_is_named_and_the_cure_works(run, text):
    config, folder = run
    index = folder / "checkpoints" / "index.json"
    good = index.read_text()
    index.write_text(text)
    with pytest.raises(TrainingError, match=r"index\.json: damaged .*--resume .*epoch_"):
        train(config, folder, "auto")
    train(config, folder, str(folder / "checkpoints" / "epoch_0001"))
    assert index.read_text() == good


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"epoch": 1}, "no 'format'"),
        (lambda s: [1], "not an object with keys but list"),
        (lambda s: {k: v for k, v in s.items() if k != "step"}, "no 'step'"),
        (lambda s: s | {"stepp": 1}, "unknown key 'stepp'"),
        (lambda s: s | {"epoch": "1"}, "'epoch' is '1'"),
        (lambda s: s | {"best": {"epoch": 1}}, "'best' has other keys"),
        (lambda s: s | {"format": 99}, "newer SlimReID"),
        (lambda s: s | {"format": 1}, "older SlimReID"),
        (lambda s: s | {"step": s["step"] + 1}, "its checksum is wrong"),
    ],
)
def test_damaged_state_is_named(run, change, message):
    path = run[1] / "checkpoints" / "epoch_0001" / "state.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(TrainingError, match=rf"state\.json: .*{message}"):
        read_state(path.parent)


def test_a_changed_state_is_refused(run):
    config, folder = run
    path = folder / "checkpoints" / "epoch_0001" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"optimizer": {}}))
    with pytest.raises(TrainingError, match=r"state\.json: damaged, its checksum is wrong"):
        train(config, folder, "auto")


@pytest.mark.parametrize("text", ["", '{"seed": 0, "sta', "{}", '{"starts": 3}'])
def test_damaged_record_of_starts_is_named_and_the_cure_works(run, text):
    config, folder = run
    (folder / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json: damaged .* remove it and go on"):
        train(config, folder, "auto")
    (folder / "run.json").unlink()
    train(config, folder, "auto")


def test_damaged_headers_of_models_are_named(run, tmp_path):
    state, header = read_model(run[1] / "model.safetensors")
    del header["impostors"]
    path = tmp_path / "m.safetensors"
    texts = ["{", "[]", "{}", json.dumps(header | {"format": "1"}), json.dumps(header | {"cameras": None})]
    texts += [
        json.dumps({k: v for k, v in header.items() if k != lost})
        for lost in ("fingerprint", "config", "modalities", "identities", "epoch", "select_on")
    ]
    for text in texts:
        save_file(state, path, metadata={"slimreid": text})
        with pytest.raises(ModelError, match=r"m\.safetensors: its header is damaged"):
            slimreid.load(path)


def test_only_own_unfinished_files_are_removed(tmp_path):
    own = [".index.json.ab12_xyz.tmp", ".model.safetensors.abcdefgh.tmp", ".config.yaml.00000000.tmp"]
    foreign = [".notes.tmp", ".index.json.tmp", ".thesis.docx.abcdefgh.tmp", "index.json.abcdefgh.tmp"]
    for name in own + foreign:
        (tmp_path / name).write_text("")
    remove_unfinished(tmp_path, ("index.json", "model.safetensors", "config.yaml"))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(foreign)


def test_foreign_folders_among_checkpoints_stay(run):
    config, folder = run
    (folder / "checkpoints" / "mine").mkdir()
    (folder / "checkpoints" / "epoch_0099").mkdir()
    train(config, folder, "auto")
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"index.json", "epoch_0001", "mine"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "lack of memory"),
        ("DataLoader worker (pid 7) is killed by signal: Terminated. ", "told to end from outside"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly", "lack of memory"),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers "
            "are out of shared memory. Please try to raise your shared memory limit.",
            "out of shared memory",
        ),
    ],
)
@pytest.mark.parametrize("saved", [True, False])
def test_dead_workers_are_explained(text, words, saved):
    left = "the last checkpoint is intact" if saved else "there is no checkpoint yet"
    with (
        pytest.raises(TrainingError, match=rf"here: a process that loads images .*{words}.*{left}"),
        explained(lambda: "here", lambda: saved),
    ):
        raise RuntimeError(text)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_nothing_is_promised_that_is_not_there(error):
    with pytest.raises(TrainingError) as caught, explained(lambda: "here", lambda: False):
        raise error
    assert "there is no checkpoint yet" in str(caught.value)
    assert "--resume" not in str(caught.value)


def test_a_run_knows_whether_it_has_a_checkpoint(run, tmp_path):
    assert CheckpointStore(RunFolder(run[1])).exists
    assert not CheckpointStore(RunFolder(tmp_path / "none")).exists


def test_an_update_that_took_no_time_is_drawn(tmp_path):
    files = TensorBoardFiles(tmp_path)
    files.step(StepReport(1, 1, 1, {"total": 1.0}, {"rest": 0.1}, 8, 0.0))
    files.close()


@pytest.mark.parametrize(
    ("model", "optim", "warned"),
    [
        ({}, {}, True),
        ({"pretrained": "w.pt"}, {}, False),
        ({}, {"backbone_lr": None}, False),
        ({}, {"backbone_lr": 3.5e-4}, False),
        ({}, {"freeze_backbone": True}, False),
    ],
)
def test_a_random_backbone_at_the_rate_of_a_pretrained_one_is_warned_of(caplog, model, optim, warned):
    with caplog.at_level(logging.WARNING, "slimreid"):
        warn_of_slow_backbone(Config(model=ModelConfig(**model), optim=OptimConfig(**optim)))
    assert [("--optim.backbone_lr null" in r.getMessage()) for r in caplog.records] == [True] * warned


def test_the_warning_comes_once_at_the_start_of_a_run_and_not_on_resume(tmp_path, caplog):
    config = make_config(write_set(tmp_path / "set"), *ONE, "optim.backbone_lr=5e-6")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(config, tmp_path / "r")
        train(config, tmp_path / "r", "auto")
    assert ["random weights" in r.getMessage() for r in caplog.records] == [True]


def test_a_missing_index_does_not_lose_the_checkpoints(run, caplog):
    config, folder = run
    before = (folder / "metrics.jsonl").read_bytes()
    index = folder / "checkpoints" / "index.json"
    named = index.read_text()
    index.unlink()
    with pytest.raises(ConfigError, match="holds a run already"):
        train(config, folder)
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(config, folder, "auto")
    assert any("the last whole checkpoint is epoch_0001" in r.getMessage() for r in caplog.records)
    assert RunFolder(folder).starts()[-1].after_epoch == 1
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert index.read_text() == named


def same_values(first, second):
    """Whether two texts are the same JSON values."""
    try:
        return json.loads(first) == json.loads(second)
    except ValueError:
        return False


def test_any_flipped_bit_of_a_checkpoint_is_noticed(run):
    folder = run[1] / "checkpoints" / "epoch_0001"
    for name in ("training.safetensors", "state.json"):
        whole = (folder / name).read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 40)):
            changed = bytearray(whole)
            changed[place] ^= 1
            (folder / name).write_bytes(changed)
            if name == "state.json" and same_values(changed, whole):
                continue  # white space, or a digit too many to change the number
            with pytest.raises((TrainingError, ModelError)):
                read_checkpoint(folder)
        (folder / name).write_bytes(whole)
    read_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: None, "is missing"),
        (lambda text: b"", "has 0 bytes"),
        (lambda text: text[:-1], "has .* bytes, but had"),
        (lambda text: text.replace(b"epoch", b"epoxh", 1), "was changed"),
    ],
    ids=["gone", "empty", "cut", "changed"],
)
def test_metrics_that_do_not_belong_to_the_checkpoint_stop_the_run(run, change, message):
    config, folder = run
    path = folder / "metrics.jsonl"
    changed = change(path.read_bytes())
    path.unlink() if changed is None else path.write_bytes(changed)
    with pytest.raises(TrainingError, match=rf"metrics\.jsonl: {message}.*; put it back"):
        train(config, folder, "auto")
