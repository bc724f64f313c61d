"""Following a teacher: distances against plain loops, what is compared with what, and what is refused."""

import logging
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import losses as reference
from slimreid.config import Config, LossConfig, TrainConfig
from slimreid.data.loader import train_loader
from slimreid.errors import ConfigError
from slimreid.inference.load import load
from slimreid.training.distillation import feature_distance, relation_distance
from slimreid.training.distributed.processes import Processes
from slimreid.training.learner import Learner
from slimreid.training.loop import train
from support.models import write_random_model
from support.runs import contents, interrupted, make_config, read_metrics, write_set

LONE = Processes(0, 1, torch.device("cpu"))
DISTANCES = {
    "feature": (feature_distance, reference.feature_distance),
    "relation": (relation_distance, reference.relation_distance),
}
ALIKE = 1e-6


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("distil") / "set", missing=True)


@pytest.mark.parametrize("kind", DISTANCES)
@given(
    present=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any), min_size=1, max_size=6
    ),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_distances_equal_plain_loops(kind, present, seed):
    ours, plain = DISTANCES[kind]
    generator = torch.Generator().manual_seed(seed)
    width = 4 if kind == "feature" else 7
    student, teacher = (
        torch.randn(len(present), 3, w, generator=generator, dtype=torch.float64) for w in (4, width)
    )
    found = ours(student, teacher, torch.tensor(present))
    expected = plain(student.tolist(), teacher.tolist(), [list(row) for row in present])
    assert float(found) == pytest.approx(expected, abs=1e-12)


def first_step(manifest, teacher, *options):
    """Named losses of the first batch, and the learner."""
    config = make_config(manifest, f"train.teacher={teacher}", *options)
    learner = Learner(config, train_loader(config), LONE)
    learner.model.train()
    total, named = learner.updater.forward(next(iter(learner.loader)), True)
    return total, named, learner


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (
            "relation",
            (
                "model.reduction=none",
                "model.fusion=none",
            ),
        ),
        ("feature", ("model.reduction=none", "model.fusion=mean", "model.neck_feature=after")),
        ("relation", ("model.fusion=mean", "model.heads=split", "model.missing=zeros")),
        (
            "feature",
            ("model.reduction=none", "model.fusion=hdm", "model.backbone=vit_tiny", "transforms.height=16"),
        ),
    ],
    ids=["none", "mean", "zeros", "hdm"],
)
def test_a_student_with_the_weights_of_its_teacher_is_at_no_distance(
    manifest, tmp_path, kind, options, monkeypatch
):
    """In train and test mode features are scaled and joined differently, but the distance sees through it."""
    teacher = write_random_model(tmp_path / "t", manifest, *options, seed=5).path.parent
    monkeypatch.setattr(
        torch.nn.MultiheadAttention, "forward", _without_dropout(torch.nn.MultiheadAttention.forward)
    )
    more = (*options, f"loss.distill={kind}", "loss.distill_weight=2")
    _, same, _ = first_step(manifest, teacher, *more, f"train.init_from={teacher}")
    total, other, _ = first_step(manifest, teacher, *more)
    assert float(same["distill"]) == pytest.approx(0, abs=ALIKE)
    assert float(other["distill"]) > 1000 * ALIKE
    weights = {"identity": 0.25, "triplet": 1.0, "distill": 2.0}
    parts = [
        weights[n.rpartition("/")[2]] * float(v) for n, v in other.items() if n not in ("total", "accuracy")
    ]
    assert float(total.detach()) == pytest.approx(sum(parts), rel=1e-5)


def _without_dropout(forward):
    def call(self, *arguments, **options):
        self.dropout = 0.0
        return forward(self, *arguments, **options)

    return call


def test_the_distance_is_that_of_plain_loops_over_the_batch(manifest, tmp_path):
    """A student of two modalities, a teacher of three with its cameras in another order."""
    theirs = ("model.reduction=none", "model.fusion=mean", "model.camera_embedding=true")
    teacher = write_random_model(tmp_path / "t", manifest, *theirs, seed=5, cameras=("2", "1")).path.parent
    _, named, learner = first_step(
        manifest,
        teacher,
        "data.modalities=[rgb, tir]",
        "model.reduction=in_backbone",
        "model.camera_embedding=true",
        "loss.distill_weight=1",
    )
    batch = next(iter(learner.loader))
    model = load(teacher).model
    with torch.no_grad():
        student = learner.model.train()(batch).features
        target = model(batch, 1 - batch.camera).features
    present = batch.present.tolist()
    assert not all(map(all, present)), "some sample lacks a modality"
    found = []
    for ours, theirs in (("original", "original"), ("slimmed", "fused")):
        own = student[ours].view(len(batch), 2, -1).tolist()
        other = target[theirs].view(len(batch), 3, -1)[:, [0, 2]].tolist()
        found.append(reference.feature_distance(own, other, present))
    assert float(named["distill"]) == pytest.approx(sum(found) / 2, rel=1e-5)


def test_gradients_flow_into_the_student_alone(manifest, tmp_path):
    theirs = ("model.reduction=none", "model.fusion=none")
    teacher = write_random_model(tmp_path / "t", manifest, *theirs, seed=5).path.parent
    only = ("loss.distill_weight=1", "loss.identity_weight=0", "loss.metric_weight=0", "optim.ema=0.9")
    total, named, learner = first_step(manifest, teacher, "model.reduction=none", "model.fusion=none", *only)
    assert set(named) == {"distill", "total", "accuracy"}
    total.backward()
    assert learner.model.backbone.class_token.grad.abs().max() > 0
    frozen = learner.updater.module.distillation.teacher
    assert not frozen.training
    assert all(p.grad is None and not p.requires_grad for p in frozen.parameters())
    assert "distillation" not in dict(learner.updater.module.named_children())
    own = set(map(id, learner.model.parameters()))
    assert all(id(p) in own for p in learner.updater.parameters)
    assert set(learner.ema.average) == set(learner.model.state_dict())


def test_a_second_branch_without_a_like_one_follows_nothing(manifest, tmp_path):
    teacher = write_random_model(
        tmp_path / "t", manifest, "model.reduction=none", "model.fusion=none", seed=5
    ).path.parent
    _, _, learner = first_step(manifest, teacher, "loss.distill_weight=1")
    assert learner.updater.module.distillation.branches == ("original",)
    _, _, learner = first_step(
        manifest, write_random_model(tmp_path / "u", manifest).path.parent, "loss.distill_weight=1"
    )
    assert learner.updater.module.distillation.branches == ("original", "slimmed")


REFUSED = {
    "modalities": (("data.modalities=[rgb, nir]",), (), r"knows rgb, nir but not tir; .*data\.modalities"),
    "height": (("transforms.height=64",), (), r"transforms\.height 64, not 32"),
    "mean": (("transforms.mean=0.4",), (), r"transforms\.mean 0\.4, not 0\.5"),
    "width": (
        ("model.backbone=vit_tiny",),
        (),
        r"192 channels per modality, not \d+; use loss\.distill relation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_teachers_that_do_not_fit_are_refused_before_anything_is_written(manifest, tmp_path, name):
    theirs, ours, message = REFUSED[name]
    teacher = write_random_model(tmp_path / "t", manifest, *theirs).path.parent
    config = make_config(manifest, f"train.teacher={teacher}", "loss.distill_weight=1", *ours)
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_relations_are_followed_whatever_the_width(manifest, tmp_path):
    teacher = write_random_model(tmp_path / "t", manifest, "model.backbone=vit_tiny").path.parent
    _, named, _ = first_step(manifest, teacher, "loss.distill_weight=1", "loss.distill=relation")
    assert 0 < float(named["distill"]) < 4


def test_teacher_and_weight_go_together(tmp_path):
    with pytest.raises(ConfigError, match=r"loss\.distill_weight is 0: give the weight too"):
        Config(train=TrainConfig(teacher="runs/base"))
    with pytest.raises(ConfigError, match=r"needs a model to follow: give train\.teacher"):
        train(Config(loss=LossConfig(distill_weight=1.0)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"loss\.distill_weight must not be negative"):
        LossConfig(distill_weight=-1.0)
    with pytest.raises(ConfigError, match="all 0: nothing to learn"):
        LossConfig(identity_weight=0.0, metric_weight=0.0)


def test_an_interrupted_run_ends_bit_identical(manifest, tmp_path, caplog):
    """What it began from may be gone by then; the teacher may have moved but must be the same."""
    base = write_random_model(
        tmp_path / "base", manifest, "model.reduction=none", "model.fusion=mean", seed=5
    ).path.parent
    options = ("model.reduction=in_backbone", "loss.distill_weight=1", "optim.ema=0.9", "train.threads=1")
    config = make_config(manifest, f"train.init_from={base}", f"train.teacher={base}", *options)
    train(config, tmp_path / "whole")
    interrupted(config, tmp_path / "parts", 4)
    moved = shutil.move(base, tmp_path / "moved")
    other = write_random_model(
        tmp_path / "other", manifest, "model.reduction=none", "model.fusion=mean", seed=6
    ).path.parent
    changed = make_config(manifest, f"train.teacher={other}", *options)
    with pytest.raises(ConfigError, match="not the model that this run has followed so far"):
        train(changed, tmp_path / "parts", "auto")
    with caplog.at_level(logging.WARNING, "slimreid"):
        train(make_config(manifest, f"train.teacher={moved}", *options), tmp_path / "parts", "auto")
    assert not caplog.records
    whole, parts = contents(tmp_path / "whole"), contents(tmp_path / "parts")
    assert sorted(whole) == sorted(parts)
    # Where the models lie is written into the options, and only there.
    for name in ("metrics.jsonl", "result.json", "checkpoints/epoch_0002/training.safetensors"):
        assert whole[name] == parts[name], name
    assert load(tmp_path / "whole").fingerprint == load(tmp_path / "parts").fingerprint
    assert all("distill" in row["train"] for row in read_metrics(tmp_path / "parts", "step"))
