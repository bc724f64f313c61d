"""Losses against plain loops, golden numbers, and batches that lack something."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from reference import losses as reference
from slimreid.config import LossConfig, ModelConfig
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.errors import ModelError
from slimreid.models.heads import ReIDOutput
from slimreid.models.reid_model import build_model
from slimreid.training.losses import (
    ReIDLoss,
    accuracy,
    batch_hard_triplet,
)
from support.golden import load_golden

METRICS = {
    "triplet": (batch_hard_triplet(), reference.triplet),
    "triplet_margin": (batch_hard_triplet(0.7), lambda x, y: reference.triplet(x, y, 0.7)),
}


def random_batch(labels, width=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(labels), width, generator=generator, dtype=dtype)
    return features, torch.tensor(labels)


@pytest.mark.parametrize("name", METRICS)
@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=9), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_metric_losses_equal_plain_loops(name, labels, seed):
    ours, plain = METRICS[name]
    features, identity = random_batch(labels, seed=seed)
    assert float(ours(features, identity)) == pytest.approx(plain(features.tolist(), labels), abs=1e-9)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1], [4]], ids=str)
def test_batches_without_positives_or_negatives_have_finite_losses_and_gradients(name, labels):
    features, identity = random_batch(labels, dtype=torch.float32)
    features.requires_grad_()
    loss = METRICS[name][0](features, identity)
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_two_equal_rows_have_a_finite_triplet_gradient():
    features = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], requires_grad=True)
    batch_hard_triplet()(features, torch.tensor([0, 0, 1])).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_golden_losses():
    golden = load_golden("losses")
    features, labels, logits = golden["features"], golden["labels"], golden["logits"]
    assert float(batch_hard_triplet()(features, labels)) == pytest.approx(golden["triplet_soft"], abs=1e-6)
    assert float(batch_hard_triplet(0.3)(features, labels)) == pytest.approx(
        golden["triplet_margin03"], abs=1e-6
    )
    output = ReIDOutput({"original": features}, {"original": logits}, {"original": features})
    losses = ReIDLoss(LossConfig(identity_weight=1.0), {"original": 1.0})(output, labels)
    assert float(losses["original/identity"]) == pytest.approx(golden["label_smooth01"], abs=1e-6)
    plain = reference.triplet(features.tolist(), labels.tolist())
    assert plain == pytest.approx(golden["triplet_soft"], abs=1e-6)


def output_of(heads, rows=6, classes=4, width=5, seed=0):
    """A made-up model output with these heads."""
    generator = torch.Generator().manual_seed(seed)
    features = {name: torch.randn(rows, width, generator=generator) for name in heads}
    logits = {name: torch.randn(rows, classes, generator=generator) for name in heads}
    return ReIDOutput({"original": torch.randn(rows, width)}, logits, features)


LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
WEIGHTS = {"original": 1.0, "slimmed": 0.5}


def expected_total(output, labels, config, weights, metric):
    total = 0.0
    for head, logits in output.logits.items():
        rows = output.valid.get(head, torch.ones(len(labels), dtype=torch.bool))
        scores, features, some = logits[rows], output.head_features[head][rows], labels[rows].tolist()
        part = config.identity_weight * reference.cross_entropy(scores.tolist(), some, config.label_smoothing)
        part += config.metric_weight * metric(features.tolist(), some)
        total += weights[head.partition(".")[0]] * part
    return total


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        ({}, reference.triplet),
        ({"identity_weight": 1.0}, reference.triplet),
        ({"metric_weight": 0.3}, reference.triplet),
        ({"label_smoothing": 0.0}, reference.triplet),
        ({"metric": "triplet_margin"}, lambda x, y: reference.triplet(x, y, 0.3)),
        ({"metric": "triplet_margin", "margin": 1.5}, lambda x, y: reference.triplet(x, y, 1.5)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "plain",
)
def test_every_option_reaches_the_total(change, metric):
    config = LossConfig(**change)
    output = output_of(["original", "slimmed"])
    losses = ReIDLoss(config, WEIGHTS)(output, LABELS)
    assert set(losses) == {f"{h}/{n}" for h in WEIGHTS for n in ("identity", config.metric)} | {"total"}
    assert float(losses["total"]) == pytest.approx(
        expected_total(output, LABELS, config, WEIGHTS, metric), rel=1e-5
    )


def test_entries_are_unweighted_and_branch_weights_count():
    output = output_of(["original", "slimmed"])
    light, heavy = (ReIDLoss(LossConfig(), {"original": 1.0, "slimmed": w})(output, LABELS) for w in (1, 3))
    assert light["slimmed/triplet"] == heavy["slimmed/triplet"]
    extra = 2 * (0.25 * light["slimmed/identity"] + light["slimmed/triplet"])
    assert_close(heavy["total"] - light["total"], extra)


@pytest.mark.parametrize(("off", "left"), [("identity_weight", "triplet"), ("metric_weight", "identity")])
def test_a_loss_of_weight_zero_is_left_out(off, left):
    losses = ReIDLoss(LossConfig(**{off: 0.0}), WEIGHTS)(output_of(["original"]), LABELS)
    assert set(losses) == {f"original/{left}", "total"}


def test_split_heads_are_added_and_only_valid_rows_count():
    heads = ["original.rgb", "original.nir", "slimmed"]
    output = output_of(heads)
    output.valid = {"original.nir": torch.tensor([True, True, False, True, True, False])}
    config = LossConfig()
    losses = ReIDLoss(config, WEIGHTS)(output, LABELS)
    assert set(losses) == {f"{h}/{n}" for h in heads for n in ("identity", "triplet")} | {"total"}
    expected = expected_total(output, LABELS, config, WEIGHTS, reference.triplet)
    assert float(losses["total"]) == pytest.approx(expected, rel=1e-5)
    output.head_features["original.nir"][2] = 1e3  # not a valid row
    assert_close(ReIDLoss(config, WEIGHTS)(output, LABELS), losses)


def test_ratio_loss_is_added_once():
    output = output_of(["original"])
    without = ReIDLoss(LossConfig(), WEIGHTS)(output, LABELS)["total"]
    output.ratio_loss = torch.tensor(0.25)
    losses = ReIDLoss(LossConfig(), WEIGHTS)(output, LABELS)
    assert float(losses["ratio"]) == 0.25
    assert_close(losses["total"], without + 0.25)


def test_when_every_head_sits_out_the_loss_is_zero_and_can_be_differentiated():
    features = torch.ones(2, 3, requires_grad=True)
    output = ReIDOutput({"original": features}, valid={"original.rgb": torch.tensor([True, False])})
    total = ReIDLoss(LossConfig(), WEIGHTS)(output, LABELS[:2])["total"]
    total.backward()
    assert float(total.detach()) == 0
    assert math.isnan(accuracy(output, LABELS[:2]))


def test_refusals_name_the_cause():
    loss = ReIDLoss(LossConfig(), WEIGHTS)
    with pytest.raises(ModelError, match="training mode"):
        loss(ReIDOutput({"original": torch.ones(2, 3)}), LABELS[:2])
    with pytest.raises(ModelError, match=r"'original' has 6 rows but there are 3 identities"):
        loss(output_of(["original"]), LABELS[:3])


def test_losses_are_computed_in_fp32_under_mixed_precision():
    output = output_of(["original"])
    expected = ReIDLoss(LossConfig(), WEIGHTS)(output, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(ReIDLoss(LossConfig(), WEIGHTS)(output, LABELS), expected, rtol=0, atol=0)
    half = replace(
        output,
        logits={k: v.bfloat16() for k, v in output.logits.items()},
        head_features={k: v.bfloat16() for k, v in output.head_features.items()},
    )
    assert ReIDLoss(LossConfig(), WEIGHTS)(half, LABELS)["total"].dtype == torch.float32


def test_accuracy_is_that_of_the_first_head_on_its_valid_rows():
    output = output_of(["original.rgb", "slimmed"])
    output.logits["original.rgb"] = torch.eye(4)[torch.tensor([0, 0, 1, 3, 3, 2])]
    assert accuracy(output, LABELS) == pytest.approx(4 / 6)
    output.valid = {"original.rgb": torch.tensor([True, True, True, False, False, True])}
    assert accuracy(output, LABELS) == 1.0


@pytest.mark.parametrize("heads", ["direct", "split"])
@pytest.mark.parametrize("fusion", ["none", "mean", "hdm_atmoe"])
def test_a_real_model_learns_from_the_total(heads, fusion):
    options = {"reduction": "none"}
    if fusion == "mean":
        options = {"after_backbone": AfterBackboneConfig(estimator="binary_concrete", ratio_loss_weight=1.0)}
    config = ModelConfig(backbone="vit_tiny", fusion=fusion, heads=heads, fusion_weight=0.5, **options)
    torch.manual_seed(0)
    model = build_model(config, (32, 32), ("rgb", "tir"), 3).train()
    images = {name: torch.randn(6, 3, 32, 32) for name in ("rgb", "tir")}
    present = torch.ones(6, 2, dtype=torch.bool)
    present[0, 1] = present[3, 0] = False
    output = model(images, present=present)
    losses = ReIDLoss(LossConfig(), model.branch_weights)(output, LABELS)
    assert ("ratio" in losses) == (fusion == "mean")
    names = {"original"} if heads == "direct" else {"original.rgb", "original.tir"}
    assert {name.split("/")[0] for name in losses} - {"ratio", "total"} == names | (
        {model.second} if model.second else set()
    )
    losses["total"].backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and name.startswith("heads"):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("length", [None, 8.0])
def test_the_metric_loss_can_see_the_feature_after_the_neck(length):
    model = build_model(
        ModelConfig(backbone="nano", reduction="none", fusion="none", heads="split"),
        (32, 16),
        ("rgb", "tir"),
        3,
    )
    generator = torch.Generator().manual_seed(3)
    images = {name: torch.randn(6, 3, 32, 16, generator=generator) for name in ("rgb", "tir")}
    present = torch.ones(6, 2, dtype=torch.bool)
    present[4, 0] = False
    identity = torch.tensor([0, 0, 1, 1, 2, 2])
    output = model.train()(images, present=present)
    config = LossConfig(metric_feature="after", metric_norm=length)
    losses = ReIDLoss(config, model.branch_weights)(output, identity)
    rows = present[:, 0]
    after = torch.nn.functional.batch_norm(
        output.head_features["original.rgb"][rows], None, None, training=True, eps=1e-5
    )
    if length:
        after = length * after / after.square().sum(1, keepdim=True).sqrt()
    expected = reference.triplet(after.tolist(), identity[rows].tolist())
    assert float(losses["original.rgb/triplet"].detach()) == pytest.approx(expected, rel=1e-4)
