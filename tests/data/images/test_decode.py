import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from slimreid.data.images import decode
from slimreid.data.images.decode import ImageInfo, apply_window, image_info, read_image, read_images
from slimreid.data.manifest import ImageRef
from slimreid.errors import DataError


def smooth(height, width):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], -1).astype(
        np.uint8
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "LA", "1"])
def test_png_modes_become_rgb(tmp_path, mode):
    Image.fromarray(smooth(10, 6)).convert(mode).save(tmp_path / "a.png")
    expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), expected)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_agrees_with_pillow(tmp_path, mode):
    Image.fromarray(smooth(40, 24)).convert(mode).save(tmp_path / "a.jpg", quality=95)
    expected = np.asarray(Image.open(tmp_path / "a.jpg").convert("RGB")).astype(int)
    assert abs(read_image(tmp_path / "a.jpg").astype(int) - expected).max() <= 2


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bit_with_a_fixed_window_keeps_absolute_heat(tmp_path, suffix):
    cold, warm = (np.full((4, 6), value, np.uint16) for value in (20000, 30000))
    for name, values in (("cold", cold), ("warm", warm)):
        Image.fromarray(values).save(tmp_path / f"{name}{suffix}")
    greys = [read_image(tmp_path / f"{n}{suffix}", window=(20000, 40000)) for n in ("cold", "warm")]
    assert greys[0].shape == (4, 6, 3)
    assert (greys[0] == 0).all()
    assert (greys[1] == 128).all()


def test_16_bit_without_a_window_is_stretched_robustly(tmp_path):
    values = np.linspace(1000, 2000, 10_000).reshape(100, 100).astype(np.uint16)
    values[0, 0] = 65535  # one hot pixel must not swallow the contrast
    Image.fromarray(values).save(tmp_path / "a.tif")
    image = read_image(tmp_path / "a.tif")[..., 0]
    assert image[1:].min() < 15
    assert np.median(image) == pytest.approx(127, abs=3)
    assert image[-1].min() >= 250


def test_windows_of_the_manifest_win_over_those_of_the_config(tmp_path):
    Image.fromarray(np.full((2, 2), 150, np.uint16)).save(tmp_path / "a.png")
    both = {"tir": ImageRef("a.png", window=(100, 200)), "nir": ImageRef("a.png")}
    images = read_images(both, tmp_path, {"tir": (0, 1), "nir": (150, 300)})
    assert images["tir"][0, 0, 0] == 128
    assert images["nir"][0, 0, 0] == 0


def test_constant_and_infinite_values():
    assert (apply_window(np.full((2, 2), 7.0, np.float32), None) == 0).all()
    values = np.array([[np.nan, np.inf], [0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(apply_window(values, (0, 1)), [[0, 255], [0, 255]])
    with pytest.raises(ValueError, match="no finite value"):
        apply_window(np.full((2, 2), np.nan, np.float32), None)


def test_strip_is_decoded_once(tmp_path, monkeypatch):
    Image.fromarray(smooth(8, 24)).save(tmp_path / "strip.png")
    refs = {n: ImageRef("strip.png", (8 * i, 0, 8 * i + 8, 8)) for i, n in enumerate(("rgb", "nir", "tir"))}
    calls = []
    original = decode.decode_file
    monkeypatch.setattr(decode, "decode_file", lambda *a: calls.append(a) or original(*a))
    images = read_images(refs, tmp_path)
    assert len(calls) == 1
    np.testing.assert_array_equal(np.concatenate(list(images.values()), 1), smooth(8, 24))


def test_scaled_decoding_stays_large_enough_and_close(tmp_path):
    Image.fromarray(smooth(512, 256)).save(tmp_path / "a.jpg", quality=95)
    small = read_image(tmp_path / "a.jpg", at_least=(256, 128))
    assert small.shape == (256, 128, 3)
    expected = Image.open(tmp_path / "a.jpg").convert("RGB").resize((128, 256), Image.Resampling.BICUBIC)
    assert abs(small.astype(int) - np.asarray(expected, int)).mean() < 1.0
    assert read_image(tmp_path / "a.jpg", at_least=(500, 250)).shape[0] >= 500


def bomb():
    """A tiny PNG that claims to be 60,000 × 60,000."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def jpeg(height=64, width=64):
    buffer = io.BytesIO()
    Image.fromarray(smooth(height, width)).save(buffer, "JPEG")
    return buffer.getvalue()


def png():
    buffer = io.BytesIO()
    Image.fromarray(smooth(64, 64)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jpg", b"", "zero bytes"),
        ("cut.jpg", jpeg()[:-200], "corrupt"),
        ("cut.png", png()[: len(png()) // 2], "corrupt"),
        ("text.jpg", b"hello, this is not an image", "not a JPEG, PNG, TIFF, BMP or WebP image"),
        ("bomb.png", bomb(), "3600000000 pixels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_image(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_huge_jpeg_is_refused_before_decoding(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(jpeg())
    monkeypatch.setattr(decode, "MAX_PIXELS", 1000)
    with pytest.raises(DataError, match="64×64 pixels"):
        read_image(tmp_path / "a.jpg")


def test_absent_file_folder_and_box_outside(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(DataError, match="cannot be read"):
        read_image(tmp_path)
    (tmp_path / "a.png").write_bytes(png())
    with pytest.raises(DataError, match="the box 0 0 65 64 reaches outside the image of 64×64"):
        read_image(tmp_path / "a.png", box=(0, 0, 65, 64))
    assert read_image(tmp_path / "a.png", box=(1, 2, 4, 7)).shape == (5, 3, 3)
    assert image_info(tmp_path / "a.png") == ImageInfo(64, 64, False, False, len(png()))
    (tmp_path / "b.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"b\.png"):
        image_info(tmp_path / "b.png")
