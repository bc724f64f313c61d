"""How much the second branch counts in the joint feature, chosen on val at the end of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import slimreid
from slimreid.config.files import load_config
from slimreid.errors import ConfigError
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.reports.evaluate import EvaluationOptions, evaluate_model
from slimreid.inference.model_card import feature_fingerprint
from slimreid.runs.identity import deciding_options
from slimreid.training.loop import train
from slimreid.training.validation import SCALES, choose_scale
from support.runs import make_config, write_set


def two_branches(spread: float) -> tuple[torch.Tensor, Labels]:
    """The first branch tells identities apart by small differences, the second is noise of that spread."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(8), 4)
    first = np.eye(8)[who] * 0.1 + np.ones((32, 8))
    second = spread * rng.normal(size=(32, 8))
    labels = Labels(who, who, np.tile(np.arange(4), 8), np.tile(np.arange(4), 8))
    return torch.from_numpy(np.hstack([first, second])).float(), labels


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_the_scale_is_the_best_of_a_plain_loop(spread):
    features, labels = two_branches(spread)
    maps = {}
    for scale in SCALES:
        joint = features.numpy().astype(np.float64).copy()
        joint[:, 8:] *= scale
        joint /= np.linalg.norm(joint, axis=1, keepdims=True)
        maps[scale] = mean_average_precision(joint, labels)
    best = choose_scale(features, 8, labels)
    assert maps[best] == pytest.approx(max(maps.values()), abs=1e-6)
    assert best < 1
    assert maps[best] > maps[1.0]


def mean_average_precision(features, labels):
    """Of everybody among all others, those by the same camera left out where they are the same person."""
    who, where = labels.query_ids, labels.query_cameras
    found = []
    for q in range(len(who)):
        others = [g for g in range(len(who)) if (who[g], where[g]) != (who[q], where[q])]
        others.sort(key=lambda g: -float(features[q] @ features[g]))
        hits = [rank for rank, g in enumerate(others, start=1) if who[g] == who[q]]
        found.append(sum(n / rank for n, rank in enumerate(hits, start=1)) / len(hits))
    return sum(found) / len(found)


def test_branches_that_change_nothing_keep_their_weight():
    features, labels = two_branches(1.0)
    features[:, 8:] = 0
    assert choose_scale(features, 8, labels) == 1.0


def test_what_training_chose_goes_with_the_model(tmp_path):
    manifest = write_set(tmp_path / "set")
    config = make_config(manifest, "train.weigh_branches=true")
    train(config, tmp_path / "run")
    loaded = slimreid.load(tmp_path / "run")
    scale = loaded.config.model.second_scale
    assert scale in SCALES
    assert deciding_options(loaded.config) == deciding_options(config), "the same run, whatever it chose"
    at_best = evaluate_model(loaded, None, EvaluationOptions(part="val")).features["both"].result.map
    for other in (0.01, 1.0, 4.0):
        loaded.model.options = replace(loaded.model.options, second_scale=other)
        there = evaluate_model(loaded, None, EvaluationOptions(part="val")).features["both"].result.map
        assert there <= at_best + 1e-6


def test_the_scale_is_in_the_joint_feature_only(trained_run):
    loaded = slimreid.load(trained_run)
    model = loaded.model
    size = model.backbone.image_size
    images = {name: torch.linspace(-1, 1, 9).view(3, 3, 1, 1).expand(3, 3, *size) for name in ("rgb", "tir")}
    before = model(images).features
    model.options = replace(model.options, second_scale=0.25)
    after = model(images).features
    assert_close(after["original"], before["original"])
    assert_close(after[model.second], 0.25 * before[model.second])
    assert_close(after["both"], torch.cat([after["original"], after[model.second]], dim=1))
    card = loaded.card
    weighed = replace(card.config.model, second_scale=0.25)
    changed = replace(card, config=replace(card.config, model=weighed))
    assert feature_fingerprint(changed, "w", "fp32") != feature_fingerprint(card, "w", "fp32")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.weigh_branches=true", "train.select_on=last"], "weigh_branches chooses on val"),
        (["train.weigh_branches=true", "model.reduction=none", "model.fusion=none"], "no second branch"),
        (["model.second_scale=0"], "second_scale: 0.0 is not in"),
    ],
)
def test_what_cannot_be_weighed_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=overrides)
