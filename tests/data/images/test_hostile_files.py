"""Files that are damaged, huge, special or something else than their name says."""

import io
import os
import random
import struct
import threading
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from slimreid.data.images import decode
from slimreid.data.images.decode import decode_file, image_info
from slimreid.errors import DataError, SlimReIDWarning

GREY = (np.add.outer(np.arange(32), np.arange(24)) * 4).astype(np.uint8)
COLOUR = Image.fromarray(np.stack([GREY, GREY.T.reshape(32, 24), 255 - GREY], -1))
DEEP = Image.fromarray(GREY.astype(np.uint16) * 200)


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


GOOD = {
    "jpeg": encode(COLOUR, "JPEG"),
    "progressive": encode(COLOUR, "JPEG", progressive=True),
    "cmyk": encode(COLOUR.convert("CMYK"), "JPEG"),
    "png": encode(COLOUR, "PNG"),
    "palette": encode(COLOUR.convert("P"), "PNG", transparency=3),
    "deep png": encode(DEEP, "PNG"),
    "apng": encode(COLOUR, "PNG", save_all=True, append_images=[COLOUR.rotate(90)]),
    "tiff": encode(COLOUR, "TIFF"),
    "lzw": encode(COLOUR, "TIFF", compression="tiff_lzw"),
    "jpeg in tiff": encode(COLOUR, "TIFF", compression="jpeg"),
    "deep tiff": encode(DEEP, "TIFF"),
    "float tiff": encode(Image.fromarray(GREY.astype(np.float32)), "TIFF", compression="tiff_deflate"),
    "pages": encode(COLOUR, "TIFF", save_all=True, append_images=[COLOUR.convert("L")]),
    "bmp": encode(COLOUR, "BMP"),
    "webp": encode(COLOUR, "WEBP"),
    "animation": encode(COLOUR, "WEBP", save_all=True, append_images=[COLOUR.rotate(90)]),
}
CASES = 150  # damaged files of each kind


def damaged(content, draw):
    """A file with a few bytes changed, cut off, repeated or put in elsewhere."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        # Mostly in the header, where a wrong byte does more than change a pixel.
        at = draw.randrange(min(len(data), draw.choice((64, 256, len(data)))))
        change = draw.randrange(5)
        if change == 0:
            data[at] = draw.randrange(256)
        elif change == 1:
            data[at : at + 4] = struct.pack(
                draw.choice("<>") + "I", draw.choice((0, 1, 2**16, 2**31, 2**32 - 1))
            )
        elif change == 2:
            del data[at : at + draw.choice((1, 4, len(data)))]
        elif change == 3:
            data[at:at] = data[at : at + 32]
        else:
            data[at] ^= 1 << draw.randrange(8)
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_give_pixels_or_a_named_error(tmp_path, kind):
    draw, path = random.Random(kind), tmp_path / "photo.jpg"
    refused = []
    for _ in range(CASES):
        path.write_bytes(damaged(GOOD[kind], draw))
        with suppress(DataError):
            image_info(path)
        try:
            pixels = decode_file(path)
        except DataError as error:
            refused.append(str(error))
        else:
            assert pixels.dtype == np.uint8
            assert pixels.ndim == 3
    assert refused, "the damage did something"
    assert all(message.startswith(f"{path}: ") and "; " in message for message in refused)


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.filterwarnings("ignore::slimreid.errors.SlimReIDWarning")
def test_good_files_are_read(tmp_path, kind):
    path = tmp_path / "a"
    path.write_bytes(GOOD[kind])
    assert decode_file(path).shape == (32, 24, 3)
    info = image_info(path)
    assert (info.width, info.height) == (24, 32)
    assert info.deep is (kind in ("deep png", "deep tiff", "float tiff"))


@pytest.mark.parametrize("kind", ["apng", "pages", "animation"])
def test_several_pages_or_frames_are_said(tmp_path, kind):
    path = tmp_path / "a.png"
    path.write_bytes(GOOD[kind])
    assert image_info(path).several
    with pytest.warns(SlimReIDWarning, match=r"a\.png: .* several pages or frames, of which only the first"):
        decode_file(path)


def test_the_previews_in_photographs_of_phones_are_no_pages(tmp_path):
    path = tmp_path / "a.jpg"
    COLOUR.save(path, "MPO", save_all=True, append_images=[COLOUR.resize((4, 4))])
    assert not image_info(path).several
    assert decode_file(path).shape == (32, 24, 3)
    assert decode_file(path, window=(0, 255)).shape == (32, 24, 3)


@pytest.mark.parametrize(
    "content",
    [
        encode(COLOUR, "GIF"),
        encode(COLOUR, "SGI"),
        b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + bytes(200),
        b"BLP2\1\0\0\0\2\0\0\0" + bytes(1200),
        b"DDS |\0\0\0" + bytes(200),
        b"%PDF-1.4\n" + bytes(100),
    ],
    ids=["gif", "sgi", "avif", "blp", "dds", "pdf"],
)
def test_other_formats_are_not_opened(tmp_path, content):
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    for read in (decode_file, image_info):
        with pytest.raises(DataError, match=r"photo\.jpg: not a JPEG, PNG, TIFF, BMP or WebP image"):
            read(path)


def test_postscript_starts_no_program(tmp_path, monkeypatch):
    started = tmp_path / "started"
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    for read in (decode_file, image_info):
        with pytest.raises(DataError, match="not a JPEG"):
            read(path)
    assert not started.exists()


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    found = {}

    def read_all():
        for name in ("pipe.jpg", "zero.jpg"):
            for read in (decode_file, image_info):
                try:
                    read(tmp_path / name)
                except DataError as error:
                    found[name, read.__name__] = str(error)

    thread = threading.Thread(target=read_all, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for a pipe or reads a device without end"
    assert len(found) == 4
    assert all("not a regular file" in message for message in found.values())


def test_huge_files_are_not_read(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(GOOD["png"])
    os.truncate(path, 7_000_000_000)  # takes no room on the disk
    for read in (decode_file, image_info):
        with pytest.raises(DataError, match="7,000,000,000 bytes are more than"):
            read(path)


def png(width, height, bits):
    """A PNG file of zeros."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + width * bits // 8) * min(height, 100)), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_huge_images_are_not_decoded(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(png(9400, 9400, 16))
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    for read in (decode_file, image_info):
        with pytest.raises(DataError, match="9400×9400 pixels are more than the 50,000,000 allowed"):
            read(path)


def test_jpeg_files_with_endless_scans_are_refused(tmp_path):
    path, data = tmp_path / "a.jpg", GOOD["progressive"]
    at = data.rindex(b"\xff\xda")
    path.write_bytes(data[:at] + data[at:-2] * 200 + data[-2:])
    with pytest.raises(DataError, match="more than 100 scans"):
        decode_file(path)
    assert data.count(b"\xff\xda") < decode.MAX_SCANS / 4


def test_names_that_cannot_be_paths(tmp_path):
    for name in ("a\0b.jpg", "x" * 5000):
        with pytest.raises(DataError, match="cannot be read"):
            decode_file(tmp_path / name)


def test_values_beyond_all_measure_are_refused(tmp_path):
    values = np.array([[-3e38, 3e38]] * 4, np.float32)
    Image.fromarray(values).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match="give a window"):
        decode_file(tmp_path / "a.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_file(tmp_path / "a.tif", (0, 1e-3))[0, :, 0].tolist() == [0, 255]
