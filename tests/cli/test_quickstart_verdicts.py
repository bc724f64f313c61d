"""The sentences of the quickstart follow from its intervals."""

from types import SimpleNamespace

import numpy as np
import pytest

from slimreid.cli.quickstart_verdicts import modalities_verdict, model_verdict
from slimreid.config import Config, TrainConfig
from slimreid.evaluation import Interval, Labels, evaluate_retrieval

SUBSETS = (("rgb",), ("tir",), ("rgb", "tir"))


def run(name, scale, low=0.4, gflops=1.0, init_from=None):
    rng = np.random.default_rng(0)
    ids, cameras = np.repeat(np.arange(20), 6), np.tile(np.arange(3), 40)
    features = scale * rng.normal(size=(20, 32))[ids] + rng.normal(size=(120, 32))
    labels = Labels(ids[::4], ids, cameras[::4], cameras)
    result = evaluate_retrieval(features[::4], features, labels)
    matrix = SimpleNamespace(subsets=SUBSETS, map=np.diag([0.2, 0.3, 0.5]))
    return SimpleNamespace(
        name=name,
        loaded=SimpleNamespace(config=Config(train=TrainConfig(epochs=20, init_from=init_from))),
        scores=SimpleNamespace(result=result, interval=Interval(0.5, low, 0.6, 0.95, 10)),
        summary=SimpleNamespace(gflops=gflops),
        evaluation=SimpleNamespace(missing={"both": matrix}, main="both", modalities=("rgb", "tir")),
    )


@pytest.mark.parametrize(("low", "word"), [(0.4, "clearly better"), (0.25, "no clear difference")])
def test_all_modalities_against_the_best_subset(low, word):
    told = modalities_verdict(run("a", 1.0, low))
    assert told.endswith(word) or f"{word} in this run" in told
    assert "30.0 for the best subset (t)" in told


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (0.3, 1.0, "clearly better"),
        (1.0, 0.3, "clearly worse"),
        (0.5, 0.5, "no clear difference in this run"),
    ],
)
def test_a_model_against_the_first(first, second, word):
    told = model_verdict(run("a", first), run("b", second, gflops=0.5), 1.5)
    assert told.startswith("b against a: mAP ")
    assert f", {word}; 0.50 × the GFLOPs, 1.50 × the throughput" in told


def test_longer_training_is_said():
    told = model_verdict(run("a", 0.3), run("b", 1.0, init_from="a"), 1.5)
    assert "clearly better after 20 more epochs;" in told
