"""Loaded models."""

from dataclasses import replace

import pytest

import slimreid


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
