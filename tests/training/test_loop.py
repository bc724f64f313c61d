"""Whole runs of a second: what is written, what is chosen, what is shown."""

import io
import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import slimreid
from slimreid.config.files import load_config
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation import evaluate_retrieval
from slimreid.evaluation.query_gallery import retrieval_labels, side_rows
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.training.callbacks.base import Callback
from slimreid.training.callbacks.display import LiveDisplay, PlainDisplay, duration, make_display
from slimreid.training.distributed.processes import Processes
from slimreid.training.loop import train
from slimreid.training.validation import Evaluator, extract
from support.runs import BATCHES, differs, make_config, read_metrics, weights, write_set

LONE = Processes(0, 1, torch.device("cpu"))


# ---- what a run leaves behind


def test_run_folder_has_everything(plain, manifest):
    folder, result, _ = plain
    assert json.loads((folder / "result.json").read_text()) == result
    assert load_config([folder / "config.yaml"]) == make_config(manifest)
    run = json.loads((folder / "run.json").read_text())
    start = run["starts"][0]
    assert run["seed"] == 0
    assert start["versions"]["torch"] == torch.__version__
    assert start["versions"]["slimreid"] == slimreid.__version__
    assert start["git_commit"] is None or len(start["git_commit"].split("+")[0]) == 40
    assert (start["surroundings"]["processes"], start["surroundings"]["device"]) == (1, "cpu")
    assert (folder / "model.safetensors").is_file()
    assert len((folder / "timing.jsonl").read_text().splitlines()) == 2
    assert not list(folder.rglob(".*.tmp"))


def test_metrics_are_named_and_complete(plain):
    folder, _, _ = plain
    steps, epochs = read_metrics(folder, "step"), read_metrics(folder, "epoch")
    assert [(row["epoch"], row["step"]) for row in steps] == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]
    names = {
        "original/identity",
        "original/triplet",
        "slimmed/identity",
        "slimmed/triplet",
        "total",
        "accuracy",
    }
    assert set(steps[0]["train"]) == names
    assert steps[0]["lr"]["backbone.weight"] == pytest.approx(1e-4), "warm-up starts at a tenth"
    assert steps[1]["lr"]["backbone.weight"] == pytest.approx(1e-4 + 9e-4 / 3), "and rises with every update"
    for epoch in (1, 2):
        of_epoch = [row["train"]["total"] for row in steps if row["epoch"] == epoch]
        row = epochs[epoch - 1]
        assert row["train"]["total"] == pytest.approx(math.fsum(of_epoch) / BATCHES)
        assert set(row["val"]) == {"map", "rank1", "rank5", "rank10", "minp"}
        assert 0 < row["val"]["map"] <= 1


def test_result_is_that_of_the_shared_model(plain, manifest):
    """Recomputed from the shared file with the evaluation's own functions."""
    folder, result, _ = plain
    epochs = read_metrics(folder, "epoch")
    best = max(epochs, key=lambda row: row["val"]["map"])
    assert result["selected_epoch"] == best["epoch"]
    assert result["best"] == {"epoch": best["epoch"], "map": best["val"]["map"], "split": "val"}
    config = make_config(manifest)
    model = slimreid.load(folder).model
    loader = Evaluator(config, slimreid_manifest(manifest), LONE).loader("test")
    features, samples = extract(model, loader, torch.device("cpu"))
    query, gallery = side_rows(samples, "test")
    assert len(query) == len(gallery) == len(samples) // 2
    assert features.norm(dim=1).allclose(torch.ones(len(samples)))
    labels = retrieval_labels(samples, query, gallery, "camera")
    again = evaluate_retrieval(features[query], features[gallery], labels)
    assert result["test"] == again.to_dict()


def slimreid_manifest(path):
    from slimreid.data.manifest import read_manifest

    return read_manifest(path)


def test_training_learns_something(manifest, tmp_path):
    still = ("transforms.flip=0", "transforms.pad=0", "transforms.erase=0", "train.eval_every=8")
    train(make_config(manifest, *still, "train.epochs=8"), tmp_path)
    rows = read_metrics(tmp_path, "epoch")
    assert rows[-1]["train"]["total"] < 0.75 * rows[0]["train"]["total"]
    assert rows[-1]["train"]["accuracy"] > 0.9


def test_curves_for_tensorboard_have_each_update_once_also_after_an_interruption(manifest, tmp_path):
    class Stop(Callback):
        def step(self, report):
            if report.step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_config(manifest), tmp_path, callbacks=[Stop()])
    train(make_config(manifest), tmp_path, "auto")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("train/total")] == [1, 2, 3, 4, 5, 6]
    assert [e.step for e in events.Scalars("val/map")] == [3, 6]
    rows = read_metrics(tmp_path, "step")
    assert [e.value for e in events.Scalars("train/total")] == pytest.approx(
        [r["train"]["total"] for r in rows]
    )


def test_plain_lines_say_all_that_matters(plain):
    lines = plain[2].splitlines()
    assert len(lines) == 2
    for word in (
        "epoch 2/2",
        "original/triplet",
        "accuracy",
        "lr ",
        "images/s",
        "left",
        "val: map",
        "best mAP",
    ):
        assert word in lines[1]


def test_live_display_shows_all_that_matters(manifest, tmp_path):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=200, height=60)
    display = make_display(console)
    assert isinstance(display, LiveDisplay)
    shown = []

    class Spy(Callback):
        def epoch(self, report):
            shown.append(dict(display._rows))

    train(make_config(manifest), tmp_path / "r", callbacks=[display, Spy()])
    rows = shown[-1]
    assert rows["epoch"] == "2 of 2"
    assert rows["step"] == "3 of 3"
    wanted = (
        "total",
        "slimmed/triplet",
        "training accuracy",
        "learning rate",
        "images/s",
        "time left",
        "best so far",
    )
    assert all(rows[name] for name in wanted)
    assert "evaluating" in rows
    assert "epoch 1/2" in text.getvalue()
    assert isinstance(make_display(Console(file=io.StringIO())), PlainDisplay)


def test_durations():
    assert [duration(s) for s in (0, 59.6, 3661, -1)] == ["0:00:00", "0:01:00", "1:01:01", "0:00:00"]


# ---- the same numbers for everybody


def test_same_seed_same_bits_whatever_the_workers_and_another_seed_others(plain, manifest, tmp_path):
    folder, _, _ = plain
    train(make_config(manifest, "data.workers=2"), tmp_path / "again")
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    assert not differs(weights(folder), weights(tmp_path / "again"))
    train(make_config(manifest, "seed=1"), tmp_path / "other")
    assert differs(weights(folder), weights(tmp_path / "other"))


# ---- choosing a checkpoint


def test_choosing_on_test_is_said_in_every_result(manifest, tmp_path):
    result = train(make_config(manifest, "train.select_on=test"), tmp_path)
    assert (result["select_on"], result["note"]) == ("test", CHOSEN_ON_TEST)
    assert result["best"]["split"] == "test"
    assert result["best"]["map"] == result["test"]["map"]
    assert slimreid.load(tmp_path).card.select_on == "test"
    assert set(read_metrics(tmp_path, "epoch")[0]) >= {"test"}


def test_last_epoch_without_choosing(tmp_path):
    manifest = write_set(tmp_path / "set", val=False)
    with pytest.raises(ConfigError, match=r"--val-identities 0\.1, or set train.select_on to 'last'"):
        train(make_config(manifest), tmp_path / "r")
    assert not (tmp_path / "r").exists()
    result = train(make_config(manifest, "train.select_on=last"), tmp_path / "r")
    assert (result["selected_epoch"], result["best"], result["select_on"]) == (2, None, "last")
    assert "note" not in result


def test_evaluation_comes_when_it_is_time_and_always_at_the_end(manifest, tmp_path):
    train(make_config(manifest, "train.epochs=3", "train.eval_every=2"), tmp_path)
    assert ["val" in row for row in read_metrics(tmp_path, "epoch")] == [False, True, True]


def test_data_that_cannot_be_evaluated_is_refused_before_training(tmp_path):
    manifest = write_set(tmp_path / "set")
    text = manifest.read_text().splitlines()
    one_camera = [line.replace(",2,,", ",1,,") if line.startswith("val") else line for line in text]
    manifest.write_text("\n".join(one_camera) + "\n")
    with pytest.raises(DataError, match="no query of 'val' has a correct match under protocol 'camera'"):
        train(make_config(manifest), tmp_path / "r")
    no_test = [line for line in text if not line.startswith(("query", "gallery"))]
    manifest.write_text("\n".join(no_test) + "\n")
    with pytest.raises(ConfigError, match="no query and gallery rows"):
        train(make_config(manifest, "train.select_on=test"), tmp_path / "r")
    assert train(make_config(manifest), tmp_path / "r")["test"] is None


@pytest.mark.parametrize("protocol", ["scene", "none"])
def test_other_protocols(tmp_path, protocol):
    manifest = write_set(tmp_path / "set")
    head, *rows = manifest.read_text().splitlines()
    rows = [row.replace(",1,,", ",1,5,").replace(",2,,", ",1,6,") + f",{protocol}" for row in rows]
    manifest.write_text("\n".join([head + ",protocol", *rows]) + "\n")
    result = train(make_config(manifest, "train.epochs=1", "optim.warmup_epochs=0"), tmp_path / "r")
    assert result["test"]["protocol"] == protocol
    assert result["test"]["map"] < 1, "the query itself is not among the answers"


def test_origin_of_the_pixels_is_in_the_result(tmp_path):
    manifest = write_set(tmp_path / "set", origin="real rgb; simulated nir/tir")
    result = train(make_config(manifest, "train.epochs=1", "optim.warmup_epochs=0"), tmp_path / "r")
    assert result["origin"] == "real rgb; simulated nir/tir"


def test_the_config_of_a_run_reads_as_yaml(plain):
    saved = yaml.safe_load((Path(plain[0]) / "config.yaml").read_text())
    assert saved["train"]["select_on"] == "val"
