"""Loaded models."""

from dataclasses import replace

import numpy as np
import pytest

import slimreid
from slimreid.training.loop import train
from support.runs import make_config


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, transforms=replace(config.transforms, mean=(0.4, 0.5, 0.5))),
        lambda config: replace(config, data=replace(config.data, scaled_decode=True)),
        lambda config: replace(config, train=replace(config.train, precision="bf16")),
    ],
)
def test_the_fingerprint_of_features_follows_preprocessing_and_precision(trained_run, change):
    loaded = slimreid.load(trained_run)
    assert slimreid.load(trained_run).feature_fingerprint == loaded.feature_fingerprint
    changed = replace(loaded, card=replace(loaded.card, config=change(loaded.config)))
    assert changed.feature_fingerprint != loaded.feature_fingerprint
    longer = replace(loaded, card=replace(loaded.card, epoch=9))
    assert longer.feature_fingerprint == loaded.feature_fingerprint, "only what decides features counts"


def test_without_a_second_branch_both_are_compared_as_the_first(trained_run, tmp_path):
    manifest = trained_run.parent / "set" / "manifest.csv"
    train(
        make_config(manifest, "model.reduction=none", "model.fusion=none", "train.epochs=1"), tmp_path / "run"
    )
    loaded = slimreid.load(tmp_path / "run")
    table = loaded.similarity("both").impostors
    assert table is not None
    np.testing.assert_array_equal(table, loaded.similarity("original").impostors)
