"""Every option of a run does what it says: precision, averages, freezing, accumulation, dropout."""

import math

import pytest
import torch

from slimreid.backbones import layers
from slimreid.config import OptimConfig
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.runs.folder import RunFolder
from slimreid.training.callbacks.base import Callback
from slimreid.training.checkpoint.store import CheckpointStore, read_checkpoint
from slimreid.training.distributed.processes import Processes
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from slimreid.training.step import Updater
from support.runs import BATCHES, differs, make_config, read_metrics, weights, write_set

LONE = Processes(0, 1, torch.device("cpu"))


def test_fp16_on_cpu_is_refused(manifest, tmp_path):
    with pytest.raises(ConfigError, match="'fp16' needs a GPU; use 'bf16'"):
        train(make_config(manifest, "train.precision=fp16"), tmp_path)


# ---- options


def test_bf16_computes_in_bf16(manifest, plain, tmp_path, monkeypatch):
    seen = set()
    real = layers.attend

    def spy(q, k, v, mask=None):
        seen.add((q.dtype, torch.is_grad_enabled()))
        return real(q, k, v, mask)

    monkeypatch.setattr(layers, "attend", spy)
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
    training = read_checkpoint(CheckpointStore(RunFolder(tmp_path)).path(2)).training
    assert torch.equal(training["weights.backbone.class_token"], weights(folder)["backbone.class_token"])
    assert differs(weights(folder), weights(tmp_path))


@pytest.mark.usefixtures("fresh_compiler")
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
    from slimreid.backbones import vit

    calls = []
    real = vit.checkpoint
    monkeypatch.setattr(vit, "checkpoint", lambda *a, **o: (calls.append(1), real(*a, **o))[1])
    train(make_config(manifest, "model.grad_checkpointing=true"), tmp_path)
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
    train(make_config(manifest, "train.epochs=5", "train.save_every=1", "train.keep_last=2"), tmp_path)
    whole = {p.parent.name for p in (tmp_path / "checkpoints").glob("*/training.safetensors")}
    assert whole == {"epoch_0004", "epoch_0005"}


class Subsets(Callback):
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


def test_missing_modalities_and_modality_dropout(tmp_path, monkeypatch):
    manifest = write_set(tmp_path / "set", missing=True)
    options = ("model.heads=split", "transforms.modality_dropout=0.5", "model.camera_embedding=true")
    options += ("train.threads=1",)
    seen = Subsets(monkeypatch)
    result = train(make_config(manifest, *options), tmp_path / "r")
    assert 0 < result["test"]["map"] <= 1
    again = train(make_config(manifest, *options), tmp_path / "again")
    assert again["fingerprint"] == result["fingerprint"]
    first, second = seen.batches[: 2 * BATCHES], seen.batches[2 * BATCHES :]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_dropout_leaves_the_same_out_of_all_samples_of_a_batch(manifest, tmp_path, monkeypatch):
    seen = Subsets(monkeypatch)
    options = ("transforms.modality_dropout=0.5", "train.epochs=4")
    train(make_config(manifest, *options), tmp_path / "batch", callbacks=[seen])
    assert len(seen.batches) == 4 * BATCHES
    assert all(len(present.unique(dim=0)) == 1 for present in seen.batches)
    subsets = {tuple(present[0].tolist()) for present in seen.batches}
    assert len(subsets) > 3, "batches differ, also from epoch to epoch"
    assert seen.images == [int(present.sum()) for present in seen.batches], "only what is there counts"


@pytest.mark.parametrize(
    "options",
    [
        ("model.after_backbone.estimator=binary_concrete", "model.after_backbone.ratio_loss_weight=1"),
        ("model.reduction=in_backbone", "optim.accumulate=2"),
        ("model.missing=zeros", "model.reduction=none", "model.fusion=mean"),
        ("model.neck_feature=after", "model.missing_fill_scale=0", "model.global_local=true"),
    ],
    ids=["ratio", "in_backbone", "zeros", "after"],
)
def test_whole_batches_without_a_modality_are_learned_from(tmp_path, options):
    manifest = write_set(tmp_path / "set", missing=True)
    config = make_config(manifest, *options, "transforms.modality_dropout=0.7", "train.epochs=3")
    train(config, tmp_path / "r")
    assert all(math.isfinite(row["train"]["total"]) for row in read_metrics(tmp_path / "r", "step"))
    assert not [name for name, value in weights(tmp_path / "r", 3).items() if not value.isfinite().all()]


def test_deterministic_algorithms_can_be_left_off(manifest, tmp_path, monkeypatch):
    seen = set()

    class Look(Callback):
        def step(self, report):
            seen.add(torch.are_deterministic_algorithms_enabled())

    for value in ("true", "false"):
        options = ("train.epochs=1", "optim.warmup_epochs=0", f"train.deterministic={value}")
        train(make_config(manifest, *options), tmp_path / value, callbacks=[Look()])
    assert seen == {True, False}


def test_noise_in_the_model_is_seeded_by_step_and_rank(manifest, monkeypatch, tmp_path):
    from slimreid.training import learner as learner_module

    seeds = []
    real = learner_module.seed_step
    monkeypatch.setattr(learner_module, "seed_step", lambda *a: (seeds.append(a), real(*a)))
    train(make_config(manifest, "seed=4", "model.drop_path=0.5"), tmp_path)
    assert seeds == [(4, step, 0) for step in range(2 * BATCHES)]
