"""Images in memory become the same pixels as the same images in files."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from slimreid.data.images.decode import read_image
from slimreid.data.images.pixels import as_pixels
from slimreid.errors import DataError

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def from_file(array, folder, window=None, suffix=".png"):
    path = folder / f"image{suffix}"
    Image.fromarray(array).save(path)
    return read_image(path, None, window)


@settings(max_examples=30, deadline=None)
@given(
    array=SHAPES.flatmap(
        lambda s: st.sampled_from([s, (*s, 3), (*s, 4)]).flatmap(lambda t: arrays.arrays(np.uint8, t))
    ),
    window=st.sampled_from([None, (10.0, 200.0)]),
)
def test_8_bit_arrays_are_what_their_file_is(array, window, folder):
    expected = from_file(array, folder, window)
    assert np.array_equal(as_pixels(array, window), expected)
    assert np.array_equal(as_pixels(Image.fromarray(array), window), expected)
    tensor = torch.from_numpy(array if array.ndim == 2 else array.transpose(2, 0, 1).copy())
    assert np.array_equal(as_pixels(tensor, window), expected)


@settings(max_examples=30, deadline=None)
@given(
    array=SHAPES.flatmap(lambda s: arrays.arrays(np.uint16, s)),
    window=st.sampled_from([None, (1000.0, 30000.0)]),
)
def test_16_bit_arrays_are_what_their_file_is(array, window, folder):
    expected = from_file(array, folder, window)
    assert np.array_equal(as_pixels(array, window), expected)
    assert np.array_equal(as_pixels(torch.from_numpy(array.astype(np.int32)), window), expected)


@pytest.mark.parametrize("window", [None, (290.0, 310.0)])
def test_temperatures_are_what_their_float_file_is(folder, window):
    array = np.random.default_rng(0).uniform(280, 320, (5, 4)).astype(np.float32)
    expected = from_file(array, folder, window, ".tif")
    assert np.array_equal(as_pixels(array, window), expected)
    assert np.array_equal(as_pixels(array[..., None], window), expected)


def test_floats_are_shares_of_255():
    array = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    shares = array.astype(np.float64) / 255
    assert np.array_equal(as_pixels(shares), array)
    assert np.array_equal(as_pixels(shares.astype(np.float32)), array)
    assert np.array_equal(as_pixels(torch.from_numpy(shares).permute(2, 0, 1)), array)
    assert np.array_equal(as_pixels(shares[..., 0])[..., 2], array[..., 0])


def test_paths_are_read_as_files(folder):
    array = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(array).save(folder / "a.png")
    for path in (folder / "a.png", str(folder / "a.png")):
        assert np.array_equal(as_pixels(path), array)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 7)), r"must be \(H, W, 3\) or \(H, W\), not \(4, 4, 7\)"),
        (np.zeros((0, 4)), r"not \(0, 4\)"),
        (np.zeros(4), r"not \(4,\)"),
        (np.zeros((4, 4), bool), "bool is no type of pixels"),
        (np.full((4, 4, 3), 300, np.uint16), "colours must be uint8 or float"),
        (np.full((4, 4, 3), -0.5), r"not float64 from -0.5 to -0.5"),
        (np.full((4, 4), np.nan), "no finite value"),
        (torch.zeros(8, 8, 3), r"a tensor must be \(3, H, W\)"),
        (3, "a int is not an image"),
        ("nothing.png", r"nothing\.png: no such file"),
    ],
)
def test_what_is_no_image_is_refused(image, message):
    with pytest.raises(DataError, match=message):
        as_pixels(image)
