"""Images and rows that should not be enrolled, by reason."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from slimreid.data.synthetic import SynthOptions
from slimreid.data.synthetic.objects.identity import draw_identities
from slimreid.data.synthetic.render import render_sample
from slimreid.errors import DataError
from slimreid.gallery.decisions.quality import (
    BLURRED,
    EMPTY,
    TOO_SMALL,
    Quality,
    image_quality,
    sample_quality,
    sharpness,
)

NAN = np.nan


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    """A person by daylight."""
    options = SynthOptions(identities=4, difficulty=0.0)
    return render_sample(options, draw_identities(options)[0], 1, 0).images["rgb"].convert("RGB")


def test_a_good_picture_has_nothing_to_complain_of(picture) -> None:
    assert image_quality(np.asarray(picture)) == Quality(1.0)
    assert image_quality(np.asarray(picture.convert("L"))).reasons == ()


def test_blur_is_noticed_and_lowers_the_value(picture) -> None:
    found = [image_quality(np.asarray(picture.filter(ImageFilter.GaussianBlur(r)))) for r in (0, 1, 2, 4)]
    values = [quality.value for quality in found]
    assert values == sorted(values, reverse=True)
    assert found[0].reasons == ()
    assert found[3].reasons == (BLURRED,)
    assert values[3] < 0.5


def test_sharpness_does_not_depend_on_the_size_or_the_contrast(picture) -> None:
    large = picture.resize((3 * picture.width, 3 * picture.height), Image.Resampling.NEAREST)
    plain, other = (sharpness(np.asarray(p.convert("L"), dtype=np.float32)) for p in (picture, large))
    assert other == pytest.approx(plain, rel=0.02)
    grey = np.asarray(picture.convert("L"), dtype=np.float32)
    assert sharpness(grey / 2 + 40) == pytest.approx(plain, rel=1e-4)


def test_sharpness_equals_a_plain_loop() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (6, 5)).astype(np.float32)
    values = []
    for y in range(1, 5):
        for x in range(1, 4):
            around = grey[y - 1, x] + grey[y + 1, x] + grey[y, x - 1] + grey[y, x + 1]
            values.append(float(around - 4 * grey[y, x]))
    assert sharpness(grey) == pytest.approx(np.std(values) / np.std(grey), rel=1e-5)
    assert sharpness(np.full((6, 5), 7, np.float32)) == 0
    assert sharpness(grey[:2]) == 0


def test_nothing_to_see_is_empty_not_blurred() -> None:
    noise = 100 + np.random.default_rng(0).normal(0, 2, (128, 64))
    for pixels in (np.full((128, 64, 3), 30, np.uint8), noise.astype(np.uint8)):
        found = image_quality(pixels)
        assert found.reasons == (EMPTY,)
        assert found.value < 0.5


def test_small_pictures_are_noticed_lying_or_standing(picture) -> None:
    small = np.asarray(picture.resize((12, 24)))
    assert TOO_SMALL in image_quality(small).reasons
    assert TOO_SMALL in image_quality(np.swapaxes(small, 0, 1)).reasons
    assert image_quality(np.full((1, 1), 9, np.uint8)) == Quality(0.0, (TOO_SMALL, EMPTY))


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4)),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 1), np.uint8),
        np.zeros((0, 4), np.uint8),
        np.zeros(4, np.uint8),
    ],
)
def test_other_arrays_are_refused(pixels) -> None:
    with pytest.raises(DataError, match="uint8"):
        image_quality(pixels)


def test_a_sample_is_as_good_as_its_images_on_average(picture) -> None:
    good, empty = np.asarray(picture), np.zeros((128, 64), np.uint8)
    assert sample_quality({"rgb": good, "tir": empty}) == Quality(0.5, ("tir: empty",))
    with pytest.raises(DataError, match="without images"):
        sample_quality({})


def test_quality_is_a_share() -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        Quality(1.5)
