import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import slimreid.data.sample_reader as images
from slimreid.config import TransformConfig
from slimreid.data.augment import transforms
from slimreid.data.augment.transforms import (
    Geometry,
    TestTransform,
    TrainTransform,
    apply_geometry,
    draw_rectangle,
    jitter_colour,
)
from slimreid.data.augment.whole_batches import draw_dropout

QUIET = {"flip": 0.0, "pad": 0, "erase": 0.0}
NAMES = ("rgb", "nir", "tir")


def image(seed=0, size=(32, 16)):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (3, *size), dtype=np.uint8))


def config(**changes):
    return TransformConfig(height=32, width=16, **({"pad": 4} | changes))


@given(st.integers(0, 8), st.integers(0, 8), st.booleans())
def test_geometry_is_pad_crop_flip(top, left, flip):
    x = image()
    padded = np.pad(x.numpy(), ((0, 0), (4, 4), (4, 4)))
    expected = padded[:, top : top + 32, left : left + 16]
    expected = expected[..., ::-1] if flip else expected
    np.testing.assert_array_equal(apply_geometry(x, Geometry(top, left, flip), 4).numpy(), expected)


def normalise(x, mean, std):
    return torch.from_numpy(images.normalise(x.numpy(), mean, std))


def test_geometry_is_shared_by_all_modalities():
    same = {name: image() for name in NAMES}
    shared = TrainTransform(config(erase=0.0))
    placed = set()
    for seed in range(20):
        a, b, c = shared(same, np.random.default_rng(seed)).values()
        assert torch.equal(a, b)
        assert torch.equal(b, c)
        placed.add(a.numpy().tobytes())
    assert len(placed) >= 18


def test_every_modality_is_erased_on_its_own():
    transform = TrainTransform(config(flip=0.0, pad=0, erase=1.0))
    blank = {name: torch.zeros(3, 32, 16, dtype=torch.uint8) for name in NAMES}
    same = 0
    for seed in range(20):
        erased = [(x != -1).any(0) for x in transform(blank, np.random.default_rng(seed)).values()]
        assert all(e.any() for e in erased)
        same += torch.equal(erased[0], erased[1])
    assert same <= 2


@given(st.integers(0, 10_000))
def test_erased_rectangle_keeps_its_bounds(seed):
    c = config(erase=1.0)
    r = draw_rectangle(c, np.random.default_rng(seed))
    assert r is not None
    assert r.top >= 0
    assert r.left >= 0
    assert r.top + r.height <= 32
    assert r.left + r.width <= 16
    assert 0.01 <= r.height * r.width / (32 * 16) <= 0.40  # 0.02 … 1/3, rounded to pixels


def test_erasing_is_normal_noise_after_normalisation(monkeypatch):
    monkeypatch.setattr(transforms, "ERASE_AREA", (0.9, 0.95))
    monkeypatch.setattr(transforms, "ERASE_ASPECT", (2, 2))
    transform = TrainTransform(config(flip=0.0, pad=0, erase=1.0))
    (x,) = transform({"rgb": torch.zeros(3, 32, 16, dtype=torch.uint8)}, np.random.default_rng(0)).values()
    noise = x[x != -1]
    assert abs(noise.mean()) < 0.1
    assert noise.std() == pytest.approx(1, abs=0.1)


def test_probabilities_are_kept():
    transform = TrainTransform(config(flip=0.3, pad=0, erase=0.0))
    x = image()
    plain = normalise(x, 0.5, 0.5)
    flips = sum(
        not torch.equal(transform({"rgb": x}, np.random.default_rng(s))["rgb"], plain) for s in range(500)
    )
    assert flips / 500 == pytest.approx(0.3, abs=0.07)


def test_dropout_leaves_at_least_one_and_hits_its_rate():
    rng = np.random.default_rng(0)
    stays = [draw_dropout(NAMES, config(modality_dropout=0.4), rng) for _ in range(3000)]
    assert min(len(s) for s in stays) == 1
    full = sum(len(s) == 3 for s in stays) / 3000
    assert full == pytest.approx(0.6**3, abs=0.03)
    for name in NAMES:
        kept = sum(name in s for s in stays) / 3000
        assert kept == pytest.approx(0.6 + 0.4**3 / 3, abs=0.03)
    assert draw_dropout(("tir",), config(modality_dropout=0.9), rng) == ("tir",)


def test_colour_jitter_is_for_colour_images_only():
    transform = TrainTransform(config(**QUIET, colour_jitter=0.5))
    samples = {name: image() for name in NAMES}
    result = transform(samples, np.random.default_rng(0))
    plain = normalise(image(), 0.5, 0.5)
    assert not torch.equal(result["rgb"], plain)
    assert torch.equal(result["nir"], plain)
    assert torch.equal(result["tir"], plain)


def test_colour_jitter_keeps_grey_grey_and_stays_in_range():
    grey = torch.full((3, 4, 4), 120, dtype=torch.uint8)
    for seed in range(20):
        out = jitter_colour(grey, 0.5, np.random.default_rng(seed))
        assert out.dtype == torch.uint8
        assert torch.equal(out[0], out[1])
        assert 60 <= int(out[0, 0, 0]) <= 180
    assert torch.equal(jitter_colour(image(), 0.0, np.random.default_rng(0)), image())


def test_test_transform_is_not_random():
    transform = TestTransform(config())
    result = transform({"rgb": image()})
    torch.testing.assert_close(result["rgb"], normalise(image(), 0.5, 0.5))
    assert (TestTransform(config()).mode, TrainTransform(config()).mode) == ("bilinear", "bicubic")
