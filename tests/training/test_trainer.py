"""Whole runs of a second: what is written, what is chosen, every option, every way to fail."""

import io
import json
import logging
import math
import os
import resource
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from run_cases import BATCHES, full_disk, make_config, read_metrics, write_set
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import slimreid
from slimreid.config import OptimConfig
from slimreid.config_io import load_config
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError, DataError, TrainingError
from slimreid.evaluation import evaluate_retrieval
from slimreid.training import trainer as trainer_module
from slimreid.training.checkpoint import CheckpointStore, read_checkpoint
from slimreid.training.display import LiveDisplay, PlainDisplay, duration, make_display
from slimreid.training.distributed import Processes
from slimreid.training.failures import explained
from slimreid.training.learner import Learner
from slimreid.training.records import Watcher
from slimreid.training.step import Updater
from slimreid.training.trainer import CHOSEN_ON_TEST, train
from slimreid.training.validation import Evaluator, extract

LONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"))


@pytest.fixture(scope="module")
def plain(manifest, tmp_path_factory):
    """A finished run without anything special, and what it returned."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    text = io.StringIO()
    watcher = make_display(Console(file=text, width=300))
    result = train(make_config(manifest), folder, watchers=[watcher])
    return folder, result, text.getvalue()


def weights(run, epoch=2):
    return read_checkpoint(CheckpointStore(run).path(epoch)).model


def differs(a, b):
    return [name for name in a if not torch.equal(a[name], b[name])]


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
    assert (start["processes"], start["device"]) == (1, "cpu")
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
    found = extract(model, loader, torch.device("cpu"), "both")
    half = len(found.index) // 2  # the manifest has query and gallery rows in turns
    query = torch.tensor([loader.dataset.samples[i].split == "query" for i in found.index.tolist()])
    assert int(query.sum()) == half
    assert found.features.norm(dim=1).allclose(torch.ones(2 * half))
    again = evaluate_retrieval(
        found.features[query],
        found.features[~query],
        found.identity[query],
        found.identity[~query],
        found.camera[query],
        found.camera[~query],
    )
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
    class Stop(Watcher):
        def step(self, report):
            if report.step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_config(manifest), tmp_path, watchers=[Stop()])
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

    class Spy(Watcher):
        def epoch(self, report):
            shown.append(dict(display._rows))

    train(make_config(manifest), tmp_path / "r", watchers=[display, Spy()])
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


def test_a_feature_of_choice_is_evaluated(manifest, plain, tmp_path):
    result = train(make_config(manifest, "train.eval_features=slimmed"), tmp_path)
    assert result["features"] == "slimmed"
    assert result["test"] != plain[1]["test"]


def test_data_that_cannot_be_evaluated_is_refused_before_training(tmp_path):
    manifest = write_set(tmp_path / "set")
    text = manifest.read_text().splitlines()
    one_camera = [line.replace(",2,,", ",1,,") if line.startswith("val") else line for line in text]
    manifest.write_text("\n".join(one_camera) + "\n")
    with pytest.raises(DataError, match="no query of 'val' has a right answer under protocol 'camera'"):
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


# ---- ways to fail


EXPLODE = ("optim.schedule=multistep", "optim.milestones=[1]", "optim.gamma=1e30", "optim.warmup_epochs=0")


def test_loss_that_is_not_finite_stops_with_step_losses_and_samples(manifest, tmp_path):
    with pytest.raises(TrainingError) as caught:
        train(make_config(manifest, *EXPLODE), tmp_path)
    message = str(caught.value)
    assert "not finite in epoch 2, step 5: original/identity" in message
    assert "total nan" in message
    assert message.count(".png") == 8 * 3, "every file of the batch is named"
    assert str(manifest.parent / "rgb") in message
    assert CheckpointStore(tmp_path).last() == tmp_path / "checkpoints" / "epoch_0001"
    assert all(bool(w.isfinite().all()) for w in weights(tmp_path, 1).values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """The very last update of an epoch may spoil them, when there is no further loss to see it by."""
    manifest = write_set(tmp_path / "set", val=False)
    learners = []

    def remember(*arguments, **options):
        learners.append(Learner(*arguments, **options))
        return learners[-1]

    def spoil():
        with torch.no_grad():
            learners[0].model.backbone.class_token.fill_(math.inf)

    monkeypatch.setattr(trainer_module, "Learner", remember)
    with pytest.raises(TrainingError, match=r"'backbone\.class_token' is not finite any more"):
        train(make_config(manifest, "train.select_on=last"), tmp_path / "r", watchers=[AtStep(6, spoil)])
    assert CheckpointStore(tmp_path / "r").last().name == "epoch_0001"


class AtStep(Watcher):
    """Does something after an update."""

    def __init__(self, step, action):
        self.at, self.action = step, action

    def step(self, report):
        if report.step == self.at:
            self.action()


def no_leftovers(folder):
    return not [p for p in folder.rglob("*") if p.name.endswith(".tmp")]


def test_a_write_refused_by_the_system_ends_with_a_clear_line(manifest, tmp_path):
    """The kernel refuses: files of this process may not grow beyond 100 kB after the first epoch."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = AtStep(4, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1])))
    try:
        with pytest.raises(TrainingError) as caught:
            train(make_config(manifest), tmp_path, watchers=[limit])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "writing the checkpoint of epoch 2: File too large" in str(caught.value)
    assert "go on with --resume auto" in str(caught.value)
    assert CheckpointStore(tmp_path).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)


@pytest.mark.parametrize("number", [1, 5])
def test_full_disk_ends_with_a_clear_line_and_can_be_gone_on_from(
    plain, manifest, tmp_path, monkeypatch, number
):
    with monkeypatch.context() as patch:
        disk = AtStep(4, lambda: patch.setattr(os, "fsync", full_disk(number)))
        with pytest.raises(TrainingError, match=r"epoch 2: No space left on device; .* free some space"):
            train(make_config(manifest), tmp_path, watchers=[disk])
    assert CheckpointStore(tmp_path).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)
    train(make_config(manifest), tmp_path, "auto")
    assert (tmp_path / "metrics.jsonl").read_bytes() == (plain[0] / "metrics.jsonl").read_bytes()


def test_exhausted_memory_ends_with_a_clear_line(manifest, tmp_path):
    greedy = AtStep(4, lambda: torch.empty(2**58))  # torch's own error, not an imitation
    with pytest.raises(TrainingError, match=r"epoch 2, update 2: out of memory; .* Lower batch\.identities"):
        train(make_config(manifest), tmp_path, watchers=[greedy])
    assert CheckpointStore(tmp_path).last().name == "epoch_0001"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_memory_errors_are_recognised(error):
    with pytest.raises(TrainingError, match="here: out of memory"), explained(lambda: "here", lambda: True):
        raise error


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), BrokenPipeError(), KeyError("x"), KeyboardInterrupt()]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)), explained(lambda: "here", lambda: True):
        raise error


def test_interruption_leaves_the_last_checkpoint(manifest, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_config(manifest), tmp_path, watchers=[AtStep(5, interrupt)])
    assert CheckpointStore(tmp_path).last().name == "epoch_0001"
    assert no_leftovers(tmp_path)


def test_broken_image_stops_the_run_or_is_dropped_and_listed(tmp_path, caplog):
    manifest = write_set(tmp_path / "set")
    (tmp_path / "set" / "nir" / "2_1_0.png").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"2_1_0\.png"):
        train(make_config(manifest), tmp_path / "r")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(make_config(manifest, "data.on_error=skip"), tmp_path / "s")
    assert "1 of 24 samples dropped" in caplog.records[-1].getMessage()


def test_fp16_on_cpu_is_refused(manifest, tmp_path):
    with pytest.raises(ConfigError, match="'fp16' needs a GPU; use 'bf16'"):
        train(make_config(manifest, "train.precision=fp16"), tmp_path)


# ---- options


def test_bf16_computes_in_bf16(manifest, plain, tmp_path, monkeypatch):
    seen = set()
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(q, k, v, **options):
        seen.add((q.dtype, torch.is_grad_enabled()))
        return real(q, k, v, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    train(make_config(manifest, "train.precision=bf16"), tmp_path)
    assert seen == {(torch.bfloat16, True), (torch.bfloat16, False)}, "in training and in evaluation"
    assert {w.dtype for w in weights(tmp_path).values()} == {torch.float32, torch.int64}
    losses = [row["train"]["total"] for row in read_metrics(tmp_path, "step")]
    others = [row["train"]["total"] for row in read_metrics(plain[0], "step")]
    assert losses[0] == pytest.approx(others[0], rel=0.02)
    assert losses != others


def test_moving_average_is_what_is_evaluated_and_shared(manifest, plain, tmp_path):
    train(make_config(manifest, "optim.ema=0.9"), tmp_path)
    folder = plain[0]
    own, averaged = read_metrics(folder, "epoch"), read_metrics(tmp_path, "epoch")
    assert [row["train"] for row in own] == [row["train"] for row in averaged], (
        "training itself does not change"
    )
    assert [row["val"] for row in own] != [row["val"] for row in averaged]
    training = read_checkpoint(CheckpointStore(tmp_path).path(2)).training
    assert torch.equal(training["weights.backbone.class_token"], weights(folder)["backbone.class_token"])
    assert differs(weights(folder), weights(tmp_path))


def test_compiled_backbone_gives_the_same(manifest, plain, tmp_path):
    train(make_config(manifest, "train.compile=true"), tmp_path, compile_backend="eager")
    losses = [row["train"]["total"] for row in read_metrics(tmp_path, "step")]
    assert losses == pytest.approx(
        [row["train"]["total"] for row in read_metrics(plain[0], "step")], rel=1e-4
    )
    assert weights(tmp_path).keys() == weights(plain[0]).keys(), "names are those of the model itself"


def test_compile_is_asked_for(manifest, monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **options: asked.append((type(self), options))
    )
    for value in ("false", "true"):
        config = make_config(manifest, f"train.compile={value}")
        learner = Learner(config, train_loader(config), LONE)
    assert asked == [(type(learner.model.backbone), {"backend": "inductor"})]


def test_gradient_checkpointing_gives_the_same(manifest, plain, tmp_path, monkeypatch):
    from slimreid.models import vit

    calls = []
    real = vit.checkpoint
    monkeypatch.setattr(vit, "checkpoint", lambda *a, **o: (calls.append(1), real(*a, **o))[1])
    train(make_config(manifest, "model.checkpointing=true"), tmp_path)
    assert len(calls) == 4 * 2 * BATCHES, "every block of every batch"
    assert (tmp_path / "metrics.jsonl").read_bytes() == (plain[0] / "metrics.jsonl").read_bytes()


def test_frozen_backbone_stays_and_the_rest_learns(manifest, tmp_path):
    config = make_config(manifest, "optim.freeze_backbone=true")
    start = Learner(config, train_loader(config), LONE).model.state_dict()
    train(config, tmp_path)
    changed = differs(start, weights(tmp_path))
    assert changed
    assert not [name for name in changed if name.startswith("backbone.")]


class Mean(torch.nn.Module):
    """A model without batch statistics: the loss is a mean over rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, rows):
        loss = self.layer(rows).exp().mean()
        return loss, {"total": loss.detach()}


def updated(batches, **options):
    module = Mean()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    updater = Updater(module, optimizer, OptimConfig(**options), scaler, None)
    before = module.layer.weight.detach().clone()
    for number, batch in enumerate(batches, start=1):
        total, _ = updater.forward(batch, number == len(batches))
        updater.backward(total, number == len(batches))
    updater.update()
    assert updater.waiting == 0
    return module.layer.weight.detach() - before


def test_accumulated_batches_are_one_big_batch():
    rows = torch.rand(12, 3, generator=torch.Generator().manual_seed(1))
    whole = updated([rows])
    assert torch.allclose(updated(list(rows.split(4))), whole, rtol=1e-5)
    assert not torch.allclose(updated([rows[:4]]), whole, rtol=1e-2)


def test_gradients_are_clipped_to_the_norm():
    rows = torch.rand(12, 3, generator=torch.Generator().manual_seed(1))
    free, clipped = updated([rows]), updated([rows], clip_norm=0.1)
    assert free.norm() > 0.1 * 0.1 * 1.5
    assert torch.nn.functional.cosine_similarity(free, clipped).item() == pytest.approx(1)
    assert clipped.norm() <= 0.1 * 0.1 + 1e-6
    assert torch.equal(updated([rows], clip_norm=1e6), free)


def test_accumulation_counts_updates_and_uses_the_rest_of_an_epoch(manifest, tmp_path):
    train(make_config(manifest, "optim.accumulate=2"), tmp_path)
    steps = read_metrics(tmp_path, "step")
    assert [(row["epoch"], row["step"]) for row in steps] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    one_by_one = make_config(manifest)
    learner = Learner(one_by_one, train_loader(one_by_one), LONE)
    batch = [learner.updater.forward(b, True)[1]["total"].item() for b in learner.loader]
    assert steps[0]["train"]["total"] == pytest.approx(sum(batch[:2]) / 2), "the mean of its two batches"


def test_checkpoints_every_few_epochs_are_kept(manifest, tmp_path):
    train(make_config(manifest, "train.epochs=5", "train.save_every=1", "train.keep=2"), tmp_path)
    whole = {p.parent.name for p in (tmp_path / "checkpoints").glob("*/training.safetensors")}
    assert whole == {"epoch_0004", "epoch_0005"}


class Subsets(Watcher):
    """Which modalities the samples of each batch come with, as the model gets them."""

    def __init__(self, monkeypatch):
        self.batches, self.images = [], []
        real = Updater.forward

        def forward(updater, batch, last):
            self.batches.append(batch.present)
            return real(updater, batch, last)

        monkeypatch.setattr(Updater, "forward", forward)

    def step(self, report):
        self.images.append(report.images)


@pytest.mark.parametrize("unit", ["batch", "sample"])
def test_missing_modalities_and_modality_dropout(tmp_path, unit, monkeypatch):
    manifest = write_set(tmp_path / "set", missing=True)
    options = ("model.heads=split", "transforms.modality_dropout=0.5", "model.camera_embedding=true")
    options += (f"transforms.dropout_unit={unit}", "train.threads=1")
    seen = Subsets(monkeypatch)
    result = train(make_config(manifest, *options), tmp_path / "r")
    assert 0 < result["test"]["map"] <= 1
    again = train(make_config(manifest, *options), tmp_path / "again")
    assert again["fingerprint"] == result["fingerprint"]
    first, second = seen.batches[: 2 * BATCHES], seen.batches[2 * BATCHES :]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_dropout_leaves_the_same_out_of_all_samples_of_a_batch(manifest, tmp_path, monkeypatch):
    seen = Subsets(monkeypatch)
    options = ("transforms.modality_dropout=0.5", "train.epochs=4", "model.completion=true")
    train(make_config(manifest, *options), tmp_path / "batch", watchers=[seen])
    assert len(seen.batches) == 4 * BATCHES
    assert all(len(present.unique(dim=0)) == 1 for present in seen.batches)
    subsets = {tuple(present[0].tolist()) for present in seen.batches}
    assert len(subsets) > 3, "batches differ, also from epoch to epoch"
    assert seen.images == [int(present.sum()) for present in seen.batches], "only what is there counts"
    seen.batches.clear()
    train(make_config(manifest, *options, "transforms.dropout_unit=sample"), tmp_path / "sample")
    assert any(len(present.unique(dim=0)) > 1 for present in seen.batches)


@pytest.mark.parametrize(
    "options",
    [
        ("model.slimming.ratio_loss=paper", "model.slimming.estimator=soft_topk"),
        ("model.slimming.where=inside", "optim.accumulate=2"),
        ("model.missing=zeros", "model.fusion=mean"),
        ("model.neck_feature=after", "model.absent_weight=0", "model.global_local=true"),
    ],
    ids=["ratio", "inside", "zeros", "after"],
)
def test_whole_batches_without_a_modality_are_learned_from(tmp_path, options):
    manifest = write_set(tmp_path / "set", missing=True)
    config = make_config(manifest, *options, "transforms.modality_dropout=0.7", "train.epochs=3")
    train(config, tmp_path / "r")
    assert all(math.isfinite(row["train"]["total"]) for row in read_metrics(tmp_path / "r", "step"))
    assert not [name for name, value in weights(tmp_path / "r", 3).items() if not value.isfinite().all()]


def test_deterministic_algorithms_can_be_left_off(manifest, tmp_path, monkeypatch):
    seen = set()

    class Look(Watcher):
        def step(self, report):
            seen.add(torch.are_deterministic_algorithms_enabled())

    for value in ("true", "false"):
        options = ("train.epochs=1", "optim.warmup_epochs=0", f"train.deterministic={value}")
        train(make_config(manifest, *options), tmp_path / value, watchers=[Look()])
    assert seen == {True, False}


def test_noise_in_the_model_is_seeded_by_step_and_rank(manifest, monkeypatch, tmp_path):
    from slimreid.training import learner as learner_module

    seeds = []
    real = learner_module.seed_step
    monkeypatch.setattr(learner_module, "seed_step", lambda *a: (seeds.append(a), real(*a)))
    train(make_config(manifest, "seed=4", "model.drop_path=0.5"), tmp_path)
    assert seeds == [(4, step, 0) for step in range(2 * BATCHES)]


def test_the_config_of_a_run_reads_as_yaml(plain):
    saved = yaml.safe_load((Path(plain[0]) / "config.yaml").read_text())
    assert saved["train"]["select_on"] == "val"
    assert trainer_module.RESULT_NAME in {p.name for p in Path(plain[0]).iterdir()}
