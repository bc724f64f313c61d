"""Degradations of training images, each against plain arithmetic, and when they act."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slimreid.config import DegradeConfig, TransformConfig
from slimreid.data.augment.degrade import (
    Frame,
    Occluder,
    apply_curves,
    blur,
    cast_curves,
    compress,
    degrade,
    draw_frame,
    draw_occluder,
    exposure_curve,
    occlude,
    reframe,
    shrink,
    to_grey,
)
from slimreid.data.augment.transforms import TrainTransform
from slimreid.errors import ConfigError

OPTIONS = [item.name for item in fields(DegradeConfig)]
PER_IMAGE = [name for name in OPTIONS if name not in ("zoom", "style", "occlusion", "grey_batch")]


def image(seed=0, size=(32, 16)):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, *size), dtype=np.uint8))


def smooth(size=(32, 16)):
    """A picture without fine detail, which blur and compression hardly change."""
    y, x = np.mgrid[: size[0], : size[1]]
    return torch.from_numpy(np.stack([4 * y + x, 255 - 4 * y, 8 * x]).astype(np.uint8))


@pytest.mark.parametrize("name", PER_IMAGE)
def test_each_acts_as_often_as_asked_and_never_at_zero(name):
    config = DegradeConfig(**{name: 0.4})
    x = image(size=(16, 128))
    changed = [not torch.equal(degrade(x, config, np.random.default_rng(s), True), x) for s in range(300)]
    assert np.mean(changed) == pytest.approx(0.4, abs=0.09)
    assert torch.equal(x, image(size=(16, 128))), "the image that is given stays as it is"
    assert torch.equal(degrade(x, DegradeConfig(), np.random.default_rng(0), True), x)


@pytest.mark.parametrize("name", PER_IMAGE)
def test_the_same_draw_gives_the_same_bytes(name):
    config = DegradeConfig(**{name: 1.0})
    found = [degrade(image(), config, np.random.default_rng(5), True) for _ in range(2)]
    assert torch.equal(*found)
    assert found[0].dtype == torch.uint8
    assert found[0].shape == (3, 32, 16)


@pytest.mark.parametrize("name", ["grey", "colour_cast"])
def test_colour_is_left_alone_where_there_is_none(name):
    x = image()
    assert torch.equal(degrade(x, DegradeConfig(**{name: 1.0}), np.random.default_rng(0), False), x)


def test_grey_is_the_brightness():
    x = image()
    r, g, b = x.numpy().astype(float)
    expected = np.rint(0.299 * r + 0.587 * g + 0.114 * b)
    for channel in to_grey(x).numpy():
        assert np.abs(channel - expected).max() <= 1  # halves


def test_curves_replace_grey_levels_one_by_one():
    x = image(size=(4, 3))
    gains = np.array([0.8, 1.0, 1.5])
    found = apply_curves(x, cast_curves(gains))
    for c in range(3):
        for y in range(4):
            for k in range(3):
                level = int(x[c, y, k]) * gains[c] / gains.mean()
                assert int(found[c, y, k]) == min(255, round(level))


def test_exposure_darkens_bends_and_flattens():
    assert np.allclose(exposure_curve(1.0, 1.0, 1.0, 128.0), np.arange(256))
    assert np.allclose(exposure_curve(0.5, 1.0, 1.0, 128.0), np.arange(256) / 2)
    assert exposure_curve(1.0, 2.0, 1.0, 128.0)[128] == pytest.approx(255 * (128 / 255) ** 2)
    flat = exposure_curve(1.0, 1.0, 0.5, 100.0)
    assert flat[100] == pytest.approx(100)
    assert flat[200] == pytest.approx(150)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.4])
def test_blur_is_a_weighted_mean_of_the_neighbourhood(sigma):
    x = image(size=(9, 7))
    reach = max(1, int(np.ceil(2.5 * sigma)))
    at = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (at / sigma) ** 2)
    weights /= weights.sum()
    padded = np.pad(x.numpy().astype(float), ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    expected = np.zeros((3, 9, 7))
    for i, a in enumerate(weights):
        for j, b in enumerate(weights):
            expected += a * b * padded[:, i : i + 9, j : j + 7]
    assert np.abs(blur(x, sigma).numpy() - expected).max() <= 0.51


def test_shrinking_keeps_the_mean_and_loses_detail():
    x, small = image().float(), shrink(image(), 0.25).float()
    assert float(small.mean()) == pytest.approx(float(x.mean()), abs=3)
    assert float(small.std()) < 0.5 * float(x.std())
    assert (shrink(smooth(), 0.5).float() - smooth().float()).abs().mean() < 3


def test_compression_costs_more_at_lower_quality():
    x = image()
    cost = [float((compress(x, q, 1.0).float() - x.float()).abs().mean()) for q in (95, 40, 8)]
    assert cost == sorted(cost)
    assert (compress(smooth(), 95, 1.0).float() - smooth().float()).abs().mean() < 6


def test_a_frame_shows_a_part_or_adds_black():
    x = image()
    assert reframe(x, None) is x
    assert torch.equal(reframe(x, Frame(1.0, 1.0, 0.0, 0.0)), x)
    constant = torch.full((3, 32, 16), 200, dtype=torch.uint8)
    assert (reframe(constant, Frame(0.75, 0.75, 0.1, 0.1)) == 200).all()
    wide = reframe(constant, Frame(2.0, 1.0, -0.5, 0.0))
    assert (wide[:, :6] == 0).all()
    assert (wide[:, 12:20] == 200).all()
    assert (wide[:, -6:] == 0).all()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_frames_stay_near_the_image(seed):
    frame = draw_frame(DegradeConfig(zoom=1.0), np.random.default_rng(seed))
    for size, corner in ((frame.height, frame.top), (frame.width, frame.left)):
        assert 0.75 <= size <= 1.15
        low, high = sorted((0.0, 1 - size))
        assert low <= corner <= high, "all of the image, or a part of it alone"


def test_what_is_in_front_hides_a_part_and_nothing_else():
    x = image()
    assert occlude(x, None, True) is x
    for colour, tone in ((True, (250, 10, 40)), (False, (85, 85, 85))):
        found = occlude(x, Occluder(0.25, 0.5, 0.5, 0.25, (250, 10, 40), (0.0, 0.0)), colour)
        for c in range(3):
            for y in range(32):
                for k in range(16):
                    hidden = 16 <= y < 24 and 4 <= k < 12
                    assert int(found[c, y, k]) == (tone[c] if hidden else int(x[c, y, k]))
    copied = occlude(x, Occluder(0.25, 0.5, 0.5, 0.25, None, (0.125, 0.0)), True)
    assert torch.equal(copied[:, 16:24, 4:12], x[:, 4:12, :8])
    assert torch.equal(x, image()), "the image that is given stays as it is"


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_what_is_in_front_lies_within_the_image(seed):
    found = draw_occluder(DegradeConfig(occlusion=1.0), np.random.default_rng(seed))
    assert 0.05 <= found.height * found.width <= 0.4
    for size, *corners in (
        (found.height, found.top, found.source[0]),
        (found.width, found.left, found.source[1]),
    ):
        assert size <= 1
        assert all(0 <= corner <= 1 - size + 1e-12 for corner in corners)
    assert draw_occluder(DegradeConfig(), np.random.default_rng(seed)) is None


@pytest.mark.parametrize("name", ["zoom", "occlusion"])
def test_a_transform_treats_all_modalities_alike(name):
    degraded = DegradeConfig(**{name: 1.0})
    config = TransformConfig(height=32, width=16, flip=0.0, pad=0, erase=0.0, degrade=degraded)
    found = TrainTransform(config)({m: image() for m in ("nir", "tir")}, np.random.default_rng(3))
    assert torch.equal(found["nir"], found["tir"])
    plain = TrainTransform(TransformConfig(height=32, width=16, flip=0.0, pad=0, erase=0.0))
    assert not torch.equal(found["nir"], plain({"nir": image()}, np.random.default_rng(3))["nir"])


@pytest.mark.parametrize("name", OPTIONS)
def test_probabilities_are_checked(name):
    with pytest.raises(ConfigError, match=rf"transforms\.degrade\.{name}"):
        DegradeConfig(**{name: 1.1})
    assert DegradeConfig(**{name: 0.1}).any
    assert not DegradeConfig().any
