"""Token reduction learned in one run: epochs with all tokens first, then the run's own average as teacher."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from torch.testing import assert_close

from reference import losses as reference
from slimreid.config.training import AVERAGE
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.training.distributed.processes import Processes
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from slimreid.training.preparation import with_whole_paths
from support.models import write_random_model
from support.runs import (
    BATCHES,
    contents,
    differs,
    interrupted,
    make_config,
    read_metrics,
    weights,
    write_set,
)

LONE = Processes(0, 1, torch.device("cpu"))
DECAY = 0.7
REDUCED = (
    "model.reduction=in_backbone",
    "model.in_backbone.schedule=[[0.25, 0.5], [0.5, 0.25]]",
    "train.epochs=3",
    "train.threads=1",
)
OWN_TEACHER = (f"train.teacher={AVERAGE}", "loss.distill_weight=2", f"optim.ema={DECAY}")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("full") / "set", missing=True)


def unreduced_names(tensors):
    """Tensors of a reduced model by the names that they have in the unreduced one."""
    return {name.replace("slimmed", "fused"): value for name, value in tensors.items()}


def test_epochs_with_all_tokens_are_those_of_the_unreduced_model(manifest, tmp_path):
    full = ("model.reduction=none", "model.fusion=mean", "train.epochs=3", "train.threads=1")
    train(make_config(manifest, *full, "train.save_every=1"), tmp_path / "full")
    train(make_config(manifest, *REDUCED, "train.full_epochs=2", "train.save_every=1"), tmp_path / "once")
    for epoch in (1, 2):
        ours = unreduced_names(weights(tmp_path / "once", epoch))
        assert not differs(weights(tmp_path / "full", epoch), ours), f"epoch {epoch}"
    after = differs(weights(tmp_path / "full", 3), unreduced_names(weights(tmp_path / "once", 3)))
    assert "backbone.class_token" in after, "tokens are reduced in the last epoch"
    steps = [
        [unreduced_names(row["train"]) for row in read_metrics(tmp_path / run, "step")]
        for run in ("full", "once")
    ]
    assert steps[0][: 2 * BATCHES] == steps[1][: 2 * BATCHES]
    assert steps[0][2 * BATCHES] != steps[1][2 * BATCHES]


def test_only_training_and_the_teacher_see_all_tokens(manifest, tmp_path, monkeypatch):
    """Evaluation is of the reduced model in every epoch; the teacher is asked from the reduction on."""
    calls = defaultdict(list)
    forward = ReIDModel.forward

    def spy(self, *arguments, all_tokens=False, **options):
        calls[id(self), self.training].append(all_tokens)
        return forward(self, *arguments, all_tokens=all_tokens, **options)

    monkeypatch.setattr(ReIDModel, "forward", spy)
    train(make_config(manifest, *REDUCED, *OWN_TEACHER, "train.full_epochs=1"), tmp_path / "run")
    (student,) = [model for model, training in calls if training]
    (teacher,) = [model for model, _ in calls if model != student]
    assert calls[student, True] == [True] * BATCHES + [False] * 2 * BATCHES
    assert calls[student, False]
    assert not any(calls[student, False])
    assert calls[teacher, False] == [True] * 2 * BATCHES
    steps = read_metrics(tmp_path / "run", "step")
    assert ["distill" in row["train"] for row in steps] == [False] * BATCHES + [True] * 2 * BATCHES


@pytest.mark.parametrize("fusion", ["mean", "hdm"])
def test_the_teacher_is_the_plain_average_with_all_tokens(manifest, fusion):
    """Over two epochs, the average kept by a loop, put into a model without token reduction."""
    width = ("model.backbone=vit_tiny", "transforms.height=32") if fusion == "hdm" else ()
    options = (*REDUCED, *OWN_TEACHER, *width, f"model.fusion={fusion}", "model.camera_embedding=true")
    config = make_config(manifest, *options)
    learner = Learner(config, train_loader(config), LONE)
    expected = {name: value.clone().double() for name, value in learner.model.state_dict().items()}
    updates = 0
    for epoch in (0, 1):
        for _ in learner.updates(epoch, updates):
            d = min(DECAY, (1 + updates) / (10 + updates))
            for name, value in learner.model.state_dict().items():
                whole = not value.is_floating_point()
                expected[name] = value.double() if whole else d * expected[name] + (1 - d) * value.double()
            updates += 1
    distillation = learner.batch_losses.distillation
    found = {name: value.double() for name, value in distillation.teacher.state_dict().items()}
    assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert any("running_mean" in name for name in found)

    full = make_config(manifest, *width, "model.reduction=none", f"model.fusion={fusion}", *options[-1:])
    labels = learner.loader.dataset.label_encoder
    plain = build_model(
        full.model, full.transforms.size, learner.model.modalities, labels.num_classes, labels.num_cameras
    ).eval()
    plain.load_state_dict({name: value.float() for name, value in unreduced_names(expected).items()})
    batch = next(iter(learner.loader))
    with torch.no_grad():
        output = learner.model.train()(batch)
        target = plain(batch, batch.camera).features
        value = float(distillation(batch, output))
    present, B = batch.present, len(batch)
    distances = []
    for name in ("original", learner.model.second):
        there = present
        if name == "fused":
            there = learner.model.hdm.subset_presence(present)
        blocks = [
            f.view(B, there.shape[1], -1).tolist()
            for f in (output.features[name], target["original" if name == "original" else "fused"])
        ]
        distances.append(reference.feature_distance(*blocks, there.tolist()))
    assert value == pytest.approx(sum(distances) / 2, rel=1e-4)
    assert value > 1e-3


@pytest.mark.parametrize("step", [2, 4, 7])
def test_a_run_interrupted_before_or_after_the_switch_ends_bit_identical(manifest, tmp_path, step):
    config = make_config(manifest, *REDUCED, *OWN_TEACHER, "train.full_epochs=1")
    train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "parts", step)
    train(config, tmp_path / "parts", "auto")
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_a_resumed_run_keeps_its_teacher_and_its_switch(manifest, tmp_path):
    other = write_random_model(tmp_path / "base", manifest, "model.reduction=none").path.parent
    followed = (f"train.teacher={other.as_posix()}", *OWN_TEACHER[1:])
    for name, options in {"own": OWN_TEACHER, "other": followed}.items():
        interrupted(make_config(manifest, *REDUCED, *options, "train.full_epochs=1"), tmp_path / name, 4)
    changes = {
        "own": [
            (followed, 1, r"train\.teacher is not the model"),
            (OWN_TEACHER[2:], 1, r"loss\.distill_weight: 2"),
            (OWN_TEACHER, 2, r"train\.full_epochs: 1 before, 2 now"),
        ],
        "other": [(OWN_TEACHER, 1, r"train\.teacher is not the model")],
    }
    for name, cases in changes.items():
        for options, epochs, message in cases:
            config = make_config(manifest, *REDUCED, *options, f"train.full_epochs={epochs}")
            with pytest.raises(ConfigError, match=message):
                train(config, tmp_path / name, "auto")


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_run_gives_the_same(manifest, tmp_path):
    options = (*REDUCED, *OWN_TEACHER, "train.full_epochs=1")
    train(make_config(manifest, *options), tmp_path / "plain")
    train(make_config(manifest, *options, "train.compile=true"), tmp_path / "run", compile_backend="eager")
    assert_close(weights(tmp_path / "run", 3), weights(tmp_path / "plain", 3), rtol=1e-3, atol=1e-4)


def test_a_folder_of_that_name_is_not_the_average(manifest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / AVERAGE).mkdir()
    config = make_config(manifest, *REDUCED, *OWN_TEACHER)
    assert with_whole_paths(config).train.teacher == AVERAGE
    given = make_config(manifest, *REDUCED, f"train.teacher=./{AVERAGE}", "loss.distill_weight=1")
    assert with_whole_paths(given).train.teacher == str(tmp_path / AVERAGE)


REFUSED = {
    "as many as all": ((*REDUCED, "train.full_epochs=3"), r"train\.full_epochs .* less than train\.epochs 3"),
    "negative": ((*REDUCED, "train.full_epochs=-1"), r"train\.full_epochs must be at least 0"),
    "not reduced": (
        ("model.reduction=none", "train.full_epochs=1"),
        r"train\.full_epochs 1: model\.reduction 'none' .* use 'in_backbone'",
    ),
    "after the backbone": (OWN_TEACHER, r"train\.teacher 'average': model\.reduction 'after_backbone'"),
    "no average": ((*REDUCED, *OWN_TEACHER[:2]), r"give its decay, optim\.ema"),
    "no weight": ((*REDUCED, OWN_TEACHER[0], OWN_TEACHER[2]), r"loss\.distill_weight is 0"),
    "nothing to learn": (
        (*REDUCED, *OWN_TEACHER, "train.full_epochs=1", "loss.identity_weight=0", "loss.metric_weight=0"),
        "nothing to learn in them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused(manifest, name):
    options, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        make_config(manifest, *options)
