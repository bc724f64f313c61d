"""A run that is killed and gone on with ends as one that never was, to the last bit."""

import json
import logging
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from slimreid.config.files import known_keys
from slimreid.errors import ConfigError, TrainingError
from slimreid.runs.identity import FREE_KEYS, ROUNDING_KEYS, flat_options
from slimreid.training.checkpoint.resume import check_same_run, check_surroundings
from slimreid.training.checkpoint.state import read_state
from slimreid.training.loop import train
from support.runs import contents, interrupted, make_config, read_metrics, write_set

# In a save: 1, 2 clear the way; 3-8 three files; 9-11 the folder gets its name; 12-14 the index.
KILLS = {
    "never": [],
    "in_epoch": [["step", 2], ["step", 5], ["step", 1]],
    "in_save": [["save", 2, n] for n in (1, 4, 5, 8, 10, 11, 13, 14)] + [["save", 3, 12], ["save", 3, 14]],
    "in_evaluation": [["evaluating", 2], ["evaluating", 5], ["evaluating", 8]],
    "any_time": [["after", 0.6], ["after", 1.1]],
}


@pytest.fixture
def manifest(tmp_path):
    """A set of the test's own: some tests here change it."""
    return write_set(tmp_path / "set")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    manifest = write_set(folder / "set", missing=True)
    script = Path(__file__).parents[2] / "support" / "kill_driver.py"
    done = subprocess.run(
        [sys.executable, script, manifest, folder],
        input=json.dumps(KILLS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [name for name in KILLS if name != "never"])
def test_killed_run_ends_bit_identical(killed, name):
    folder, codes = killed
    assert codes["never"] == [0]
    *died, last = codes[name]
    assert last == 0
    if name != "any_time":
        assert died == [-9] * len(KILLS[name]), "every process was to die before the end"
    expected, found = contents(folder / "never"), contents(folder / name)
    assert sorted(found) == sorted(expected)
    assert [key for key in expected if found[key] != expected[key]] == []


def test_killed_run_was_worth_resuming(killed):
    """The comparison above would also hold for a run that does nothing."""
    folder, _ = killed
    steps, epochs = (read_metrics(folder / "in_save", kind) for kind in ("step", "epoch"))
    assert [row["step"] for row in steps] == list(range(1, 10))
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    assert len({row["train"]["total"] for row in steps}) == 9
    starts = json.loads((folder / "in_save" / "run.json").read_text())["starts"]
    assert [s["after_epoch"] for s in starts] == [0, *[1] * 7, 2, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        (
            "optim.name=sgd",
            "optim.accumulate=2",
            "model.reduction=none",
            "model.fusion=hdm_atmoe",
            "train.precision=bf16",
        ),
        ("optim.name=adamw", "data.workers=1", "model.camera_embedding=true", "loss.metric=triplet_margin"),
        ("transforms.modality_dropout=0.5",),
    ],
    ids=["sgd", "adamw", "dropout"],
)
def test_interrupted_run_ends_bit_identical(manifest, tmp_path, options):
    config = make_config(manifest, *options, "train.threads=1")
    train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "parts", 4 if "optim.accumulate=2" not in options else 3)
    train(config, tmp_path / "parts", "auto")
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_keys_that_may_change_exist():
    assert set(known_keys()) >= FREE_KEYS | ROUNDING_KEYS
    assert not FREE_KEYS & ROUNDING_KEYS


def test_changed_options_are_refused_by_name_unless_they_may_change(tmp_path, caplog):
    manifest = write_set(tmp_path / "set")
    config = make_config(manifest, "train.threads=1")
    interrupted(config, tmp_path / "r", 4)
    before = contents_of_checkpoints(tmp_path / "r")
    other = make_config(manifest, "train.threads=1", "optim.lr=2e-3", "seed=5", "data.workers=1")
    with pytest.raises(ConfigError) as caught:
        train(other, tmp_path / "r", "auto")
    message = str(caught.value)
    assert "optim.lr: 0.001 before, 0.002 now" in message
    assert "seed: 0 before, 5 now" in message
    assert "data.workers" not in message
    assert "another --out" in message
    assert contents_of_checkpoints(tmp_path / "r") == before

    moved = manifest.rename(manifest.with_name("moved.csv"))
    allowed = make_config(moved, "train.threads=1", "batch.test=7", "train.save_every=1", "data.cache=ram")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(allowed, tmp_path / "r", "auto")
    assert [r.getMessage() for r in caplog.records] == [
        "batch.test: 5 before, 7 now; the result will not be bit-identical"
    ]


def test_a_run_of_an_earlier_version_goes_on_with_what_is_always_done(manifest, tmp_path):
    config = make_config(manifest, "train.epochs=1", "train.threads=1", "optim.warmup_epochs=0")
    train(config, tmp_path)
    state = read_state(tmp_path / "checkpoints" / "epoch_0001")
    state.config["optim"]["schedule"] = "cosine"
    check_same_run(state, asdict(config), state.dataset)
    state.config["optim"]["schedule"] = "multistep"
    with pytest.raises(ConfigError, match=r"optim\.schedule: 'multistep' before, None now"):
        check_same_run(state, asdict(config), state.dataset)


def contents_of_checkpoints(run):
    return {p: p.read_bytes() for p in (run / "checkpoints").rglob("*") if p.is_file()}


def test_other_threads_are_warned_of(manifest, tmp_path, caplog):
    interrupted(make_config(manifest, "train.threads=1"), tmp_path / "r", 4)
    state = read_state(tmp_path / "r" / "checkpoints" / "epoch_0001")
    with caplog.at_level(logging.WARNING, "slimreid"):
        check_same_run(state, asdict(make_config(manifest, "train.threads=2")), state.dataset)
        check_surroundings(state, replace(state.surroundings, threads=2))
    assert [r.getMessage().split(";")[0] for r in caplog.records] == [
        "train.threads: 1 before, 2 now",
        "threads: 1 before, 2 now",
    ]


def test_changed_manifest_is_refused(manifest, tmp_path):
    config = make_config(manifest)
    interrupted(config, tmp_path / "r", 4)
    rows = manifest.read_text().splitlines()
    manifest.write_text("\n".join([rows[0], *reversed(rows[1:])]) + "\n")
    with pytest.raises(ConfigError, match="manifest's rows have changed"):
        train(config, tmp_path / "r", "auto")


def test_a_run_is_not_overwritten_by_accident(manifest, tmp_path):
    config = make_config(manifest, "train.epochs=1", "optim.warmup_epochs=0")
    first = train(config, tmp_path / "r")
    with pytest.raises(ConfigError, match="--resume auto"):
        train(config, tmp_path / "r")
    assert train(config, tmp_path / "r", "auto") == first, "a finished run gives its result again"


def test_going_on_from_a_checkpoint_elsewhere_and_from_an_older_one(manifest, tmp_path):
    config = make_config(
        manifest, "train.epochs=3", "train.save_every=1", "train.keep_last=2", "train.threads=1"
    )
    whole = tmp_path / "whole"
    train(config, whole)
    expected = contents(whole)
    kept = whole / "checkpoints" / "epoch_0002"
    assert read_state(kept).kept == [1, 2]
    train(config, tmp_path / "elsewhere", str(kept))
    found = contents(tmp_path / "elsewhere")
    for name in (
        "model.safetensors",
        "metrics.jsonl",
        "result.json",
        "checkpoints/epoch_0003/training.safetensors",
    ):
        assert found[name] == expected[name], name
    train(config, whole, str(kept))
    assert contents(whole) == expected
    with pytest.raises(ConfigError, match="holds another run"):
        train(config, whole, str(tmp_path / "elsewhere"))


def test_what_cannot_be_gone_on_from_is_named(manifest, tmp_path):
    config = make_config(manifest, "train.epochs=3")
    result = train(config, tmp_path / "r")
    with pytest.raises(ConfigError, match="give auto, never, or the folder"):
        train(config, tmp_path / "s", "outo")
    with pytest.raises(ConfigError, match="no checkpoint in this folder"):
        train(config, tmp_path / "s", str(manifest.parent))
    last = tmp_path / "r" / "checkpoints" / "epoch_0003"
    if result["selected_epoch"] != 3:
        best = last.with_name(f"epoch_{result['selected_epoch']:04}")
        with pytest.raises(TrainingError, match="training cannot continue from here"):
            train(config, tmp_path / "s", str(best))
    (last / "training.safetensors").write_bytes(b"torn")
    with pytest.raises(TrainingError, match=r"training\.safetensors: damaged, its checksum"):
        train(config, tmp_path / "r", "auto")
    (last / "state.json").write_text("{")
    with pytest.raises(TrainingError, match=r"state\.json: cannot be read"):
        train(config, tmp_path / "r", "auto")


def test_options_are_flattened_with_tuples_as_lists(manifest):
    config = make_config(manifest, "data.windows={tir: [1, 2]}", "model.stride=[8,8]")
    flat = flat_options(asdict(config))
    assert flat["model.stride"] == [8, 8]
    assert flat["data.windows"] == {"tir": [1.0, 2.0]}
    assert flat["model.after_backbone.keep_ratio"] == 0.5
    assert flat_options(json.loads(json.dumps(asdict(config)))) == flat
