"""Images of a row, from files of this machine or from a store elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import fsspec  # type: ignore[import-untyped]

from slimreid.arrays import Pixels
from slimreid.data.images.decode import MAX_BYTES, crop_box, decode_bytes, read_content
from slimreid.data.images.hashing import hash_of
from slimreid.data.manifest import ImageRef, Window
from slimreid.errors import DataError

SCHEMES = ("s3", "gs", "http", "https", "file")
"""What an address may begin with. Others of fsspec could run programs or ask for passwords."""


def is_url(path: str) -> bool:
    """Whether a path is the address of a file elsewhere."""
    return "://" in path


def read_pixels(
    images: Mapping[str, ImageRef], windows: Mapping[str, Window], at_least: tuple[int, int] | None
) -> tuple[dict[str, Pixels], str]:
    """All images of a row and their hash; a file that holds several of them (a strip) is read once.

    Raises `DataError` naming the file that cannot be read.
    """
    contents = {}
    for path in dict.fromkeys(image.path for image in images.values()):
        contents[path] = fetch(path) if is_url(path) else read_content(Path(path))
    decoded: dict[tuple[str, Window | None], Pixels] = {}
    found = {}
    for name, image in images.items():
        window = image.window or windows.get(name)
        key = (image.path, window)
        if key not in decoded:
            decoded[key] = decode_bytes(
                contents[image.path], image.path, window, None if image.box else at_least
            )
        found[name] = crop_box(decoded[key], image.box, image.path)
    return found, hash_of(images, contents)


def fetch(url: str) -> bytes:
    """The content of a file elsewhere; raises `DataError` with the address."""
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise DataError(f"{url}: addresses begin with {', '.join(f'{s}://' for s in SCHEMES)}; correct it")
    try:
        with fsspec.open(url, "rb") as file:
            data: bytes = file.read(MAX_BYTES + 1)
    except ImportError as error:
        raise DataError(f"{url}: reading from {scheme}:// needs another package ({error})") from None
    except Exception as error:  # every store has errors of its own
        reason = str(error).strip() or type(error).__name__
        raise DataError(f"{url}: cannot be read ({reason})") from None
    if not data or len(data) > MAX_BYTES:
        size = "empty" if not data else f"more than the {MAX_BYTES:,} bytes allowed"
        raise DataError(f"{url}: the file is {size}")
    return data
