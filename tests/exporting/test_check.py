"""What the check of an exported model takes for a fault, and what for a near tie of two patches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slimreid.evaluation.metrics.result import PairedDifference
from slimreid.exporting.agreement import (
    BATCHES,
    LEAST_COSINE,
    Agreement,
    Runner,
    check_agreement,
    torch_runner,
)
from slimreid.exporting.check import Accuracy, Check
from slimreid.exporting.samples import CheckSamples, noise_samples
from support.models import write_random_model

SLIM = ("model.reduction=in_backbone", "model.in_backbone.schedule=[[0.5,0.4]]")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return write_random_model(tmp_path_factory.mktemp("run"), None, *SLIM, modalities=("rgb",))


@pytest.fixture(scope="module")
def samples(loaded):
    return noise_samples(loaded)


def kept(run: Runner, image: np.ndarray) -> set[int]:
    found = run({"rgb": image[None]}, np.zeros(1, np.int64))["kept_1"]
    return set(found.ravel().tolist())


def near_tie(run: Runner, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two images between the given ones that are the same but for rounding, and of which other patches are kept."""
    low, high = 0.0, 1.0
    image = lambda t: ((1 - t) * first + t * second).astype(np.float32)  # noqa: E731
    start = kept(run, first)
    assert kept(run, second) != start
    while high - low > 2e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if kept(run, image(middle)) == start else (low, middle)
    return image(low), image(high)


def instead(run: Runner, image: np.ndarray, other: np.ndarray) -> Runner:
    """A model that sees `other` where `image` is shown."""

    def changed(images, cameras):
        same = (images["rgb"] == image).all(axis=(1, 2, 3))
        return run({"rgb": np.where(same[:, None, None, None], other, images["rgb"])}, cameras)

    return changed


def with_first(samples: CheckSamples, image: np.ndarray) -> CheckSamples:
    return replace(samples, images={"rgb": np.concatenate([image[None], samples.images["rgb"][1:]])})


def test_a_near_tie_that_rounding_breaks_is_no_fault(loaded, samples):
    run = torch_runner(loaded)
    low, high = near_tie(run, *samples.images["rgb"][:2])
    (found,) = check_agreement(loaded, instead(run, low, high), with_first(samples, low))
    assert (found.samples, found.ties) == (sum(BATCHES), 1)
    assert found.cosine_as_is < LEAST_COSINE <= found.cosine
    assert found.kept[0] == pytest.approx(1, abs=0.01)
    assert found.kept[0] < 1
    assert Check("samples", (found,), None).faults("float32", 0.5) == []
    (plain,) = check_agreement(loaded, instead(run, low, high), with_first(samples, low), ties=False)
    assert plain.cosine == plain.cosine_as_is == found.cosine_as_is
    assert plain.ties == 0


def test_a_single_sample_that_differs_otherwise_is_a_fault(loaded, samples):
    run = torch_runner(loaded)
    image = samples.images["rgb"][0]
    (found,) = check_agreement(loaded, instead(run, image, 0.9 * image), samples)
    assert found.ties == 0
    assert found.cosine == pytest.approx(found.cosine_as_is, abs=1e-6)
    assert found.cosine < LEAST_COSINE
    assert "features differ" in Check("samples", (found,), None).faults("float32", 0.5)[0]


def test_features_that_are_no_numbers_are_a_fault(loaded, samples):
    run = torch_runner(loaded)
    (found,) = check_agreement(
        loaded, lambda *sample: {n: x * np.nan for n, x in run(*sample).items()}, samples
    )
    assert found.cosine == -1
    for precision in ("float32", "int8"):
        assert "cosine -1" in Check("samples", (found,), None).faults(precision, 0.5)[0]


def test_what_fails_a_check():
    same = Agreement(
        ("rgb",), 39, False, cosine=0.99995, mean=0.99999, ties=1, cosine_as_is=0.5, kept=(0.99,)
    )
    accuracy = Accuracy("both", 5, 9, map=(0.5, 0.496), rank1=(1.0, 1.0), difference=None)
    good = Check("samples", (same,), accuracy)
    assert good.faults("float32", 0.5) == []
    assert "falls by 0.40 points" in good.faults("int8", 0.3)[0]
    other = Check("samples", (same, replace(same, cosine=0.9998)), None)
    assert "cosine 0.999800" in other.faults("float32", 0.5)[0]
    assert other.faults("int8", 0.5) == []


def test_a_loss_on_a_part_of_the_samples_counts_with_its_interval():
    difference = PairedDifference(
        value=-0.002, low=-0.008, high=0.004, level=0.95, samples=9, share_positive=0.3
    )
    whole = Accuracy("both", 5, 9, map=(0.5, 0.498), rank1=(1.0, 1.0), difference=difference)
    part = replace(whole, whole=False)
    assert (whole.most_loss, part.most_loss) == pytest.approx((0.2, 0.8))
    assert replace(part, difference=None).most_loss == pytest.approx(0.2)
    same = Agreement(("rgb",), 39, False, cosine=0.9, mean=0.95, ties=0, cosine_as_is=0.9, kept=())
    assert Check("samples", (same,), whole).faults("int8", 0.5) == []
    assert "by 0.20 points (up to 0.80: not all" in Check("samples", (same,), part).faults("int8", 0.5)[0]
    assert Check("samples", (same,), part).to_dict()["accuracy"]["most_loss_points"] == pytest.approx(0.8)
