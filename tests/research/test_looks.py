"""Degradations of the test on other looks against plain loops, and how their draws are fixed."""

import io

import look_filters as filters
import looks
import numpy as np
import pytest
from PIL import Image

from reference import looks as reference
from slimreid.data.images.resize import resize

RGB = {"modality": "rgb", "camera": "1", "sample": "a"}


@pytest.fixture
def image():
    """40 × 24, so that a length of 8 is one of 3 pixels."""
    return np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8)


def near(first, second, levels=1):
    """Whether pictures agree; a level apart where float32 rounds a half the other way."""
    difference = np.abs(first.astype(float) - np.asarray(second, dtype=float))
    return difference.max() <= levels and difference.mean() < 0.6 * levels


def test_light_and_colour(image):
    dark = reference.per_value(image, lambda value, _: 0.3 * value)
    assert near(looks.show("dark_0.3", image, **RGB), dark)
    warm = reference.per_value(image, lambda value, c: (1.35, 1.0, 0.6)[c] * value)
    assert near(looks.show("warm", image, **RGB), warm)
    assert warm.max() == 255  # what is too bright is cut off, not wrapped
    gamma = reference.per_value(image, lambda value, _: 255 * (value / 255) ** 2)
    assert near(looks.show("gamma_2", image, **RGB), gamma)


def test_contrast_and_grey(image):
    mean = reference.mean_grey(image)
    low = reference.per_value(image, lambda value, _: mean + 0.35 * (value - mean))
    assert near(looks.show("contrast", image, **RGB), low)
    shown = looks.show("grey", image, **RGB)
    assert (shown == shown[..., :1]).all()
    for y, x in ((0, 0), (17, 9), (39, 23)):
        assert abs(int(shown[y, x, 0]) - reference.brightness(image[y, x])) <= 0.51


def test_blurs_grow_with_the_picture(image):
    assert near(filters.blur(image, 4.0), reference.gaussian(image, 4.0 * 24 / 64))
    moved = reference.weighted_rows(image, [1 / 3] * 3)
    assert near(filters.motion_blur(image, 9), moved)  # 9 of 64 are 3 of 24
    assert (filters.motion_blur(image, 1) == image).all()


def test_resolution(image):
    small = resize(image, (13, 8), "bilinear").transpose(1, 2, 0)
    back = resize(np.ascontiguousarray(small), (40, 24), "bilinear").transpose(1, 2, 0)
    assert (filters.low_resolution(image, 3) == back).all()
    plain = np.full((40, 24, 3), 77, np.uint8)
    assert (filters.low_resolution(plain, 3) == plain).all()
    assert filters.low_resolution(plain[:1, :1], 3).shape == (1, 1, 3)


def test_compression(image):
    smooth = filters.blur(image, 6.0)
    file = io.BytesIO()
    Image.fromarray(smooth).save(file, "JPEG", quality=20, subsampling="4:2:0")
    errors = [np.abs(filters.jpeg(smooth, q) - smooth.astype(float)).mean() for q in (90, 20, 10)]
    assert errors[0] < errors[1] < errors[2]
    other = np.abs(filters.jpeg(smooth, 20) - np.asarray(Image.open(file), dtype=float))
    assert other.mean() < 0.25 * errors[1]  # decoders differ at the edges of colours


def test_noise_has_its_size():
    grey = np.full((64, 64, 3), 128, np.uint8)
    found = looks.show("noise", grey, **RGB) - grey.astype(float)
    assert abs(found.std() - 20) < 0.5
    assert abs(found.mean()) < 0.5


def test_a_fifth_is_hidden(image):
    shapes = set()
    for number in range(20):
        rng = np.random.default_rng(number)
        top, left, height, width = filters.draw_rectangle((100, 50), 0.2, rng)
        assert 0 <= top <= 100 - height
        assert 0 <= left <= 50 - width
        assert abs(height * width / 5000 - 0.2) < 0.01
        shapes.add((height, width))
    assert len(shapes) > 10
    shown = looks.show("no_legs", image, **RGB)
    assert (shown[:32] == image[:32]).all()
    assert (shown[32:] == shown[32, 0]).all()
    hidden = (looks.show("occluded", image, **RGB) != image).any(axis=2)
    assert abs(hidden.mean() - 0.2) < 0.03


def test_another_frame(image):
    assert (filters.reframe(image, 1.0, 0.0, 0.0) == image).all()
    down = filters.reframe(image, 1.0, 0.25, 0.0)
    assert (down[:30] == image[10:]).all()
    assert (down[30:] == image[-1]).all()  # the edge goes on
    right = filters.reframe(image, 1.0, 0.0, -0.25)
    assert (right[:, 6:] == image[:, :18]).all()
    half = filters.reframe(image, 0.5, 0.0, 0.0)
    expected = resize(np.ascontiguousarray(image[10:30, 6:18]), (40, 24), "bilinear").transpose(1, 2, 0)
    assert (half == expected).all()


def test_every_look_changes_the_picture_and_nothing_else(image):
    before = image.copy()
    for name in looks.LOOKS:
        shown = looks.show(name, image, **RGB)
        assert shown.shape == image.shape
        assert shown.dtype == np.uint8
        assert (shown == looks.show(name, image, **RGB)).all(), name
        assert (shown == image).all() == (name == looks.CLEAN), name
    assert (image == before).all()


def test_draws_follow_look_sample_and_camera(image):
    for name in ("noise", "occluded", "crop_jitter"):
        other = looks.show(name, image, **{**RGB, "sample": "b"})
        assert (other != looks.show(name, image, **RGB)).any(), name
    for site in looks.SITES:
        cameras = [looks.site_camera(site, camera) for camera in "123456"]
        assert len(set(cameras)) == 6
        for camera in cameras:
            assert 0.3 < camera.cast[0] < 1.8
            assert 15 <= camera.quality <= 80
            assert 1 <= camera.resolution <= 2.5
    assert looks.site_camera("site_a", "1") != looks.site_camera("site_b", "1")


def test_looks_act_on_the_modalities_they_fit(image):
    def changed(name):
        return [m for m in ("rgb", "nir", "tir") if (show(name, m) != image).any()]

    def show(name, modality):
        return looks.show(name, image, **{**RGB, "modality": modality})

    assert changed("dark_0.3") == changed("warm") == changed("grey") == ["rgb"]
    assert changed("gamma_2") == changed("contrast") == ["rgb", "nir"]
    assert changed("blur") == changed("site_a") == ["rgb", "nir", "tir"]
    hidden = [(show("occluded", m) != image).any(axis=2) for m in ("rgb", "nir")]
    assert (hidden[0] == hidden[1]).mean() > 0.99  # one thing stands before all modalities
    assert (show("noise", "nir") != show("noise", "tir")).any()
    nir = show("no_legs", "nir")[-1, 0]
    assert (nir == nir[0]).all()  # and it has no colour in infrared


def test_the_version_follows_the_looks(monkeypatch):
    before = looks.version.__wrapped__()
    assert before == looks.version.__wrapped__()
    monkeypatch.setitem(looks.LOOKS, "dark_0.3", looks.LOOKS["dark_0.5"])
    assert looks.version.__wrapped__() != before
