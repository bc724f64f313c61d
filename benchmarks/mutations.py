"""Damage for files: random bytes, hostile text, JSON of other types, special files."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

HOSTILE = (
    *(
        "",
        " ",
        "null",
        "~",
        "[",
        "]",
        "{",
        "}",
        ":",
        "- ",
        "#",
        "\t",
        "\r",
        "\0",
        "\x1b[31m",
        '"',
        "'",
        "\\",
        ",",
        ";",
    ),
    *(
        "-1",
        "0",
        "1e999",
        "-1e-400",
        ".nan",
        "NaN",
        ".inf",
        "Infinity",
        "9" * 30,
        "9" * 5000,
        "0x_",
        "0b",
        "1_0",
    ),
    *(
        "1" + "0" * 19,
        "-9223372036854775809",
        "2024-99-99",
        "true",
        "off",
        "a" * 70_000,
        "rgb",
        "id0",
        "--out",
    ),
    *(
        "!!int abc",
        "!!python/object/apply:os.system [x]",
        "!!binary x",
        "&a [*a]",
        "*a",
        "<<: *a",
        "[[" * 1200,
    ),
    *(
        '{"a":' * 1200,
        "[/x]",
        "[bold]",
        "{{ 7*7 }}",
        "${HOME}",
        "%s%n",
        "\udcff",
        "é",
        "名",
        "\u202e",
        "\ufeff",
    ),
    *("../../etc/passwd", "/dev/zero", "/", "~root"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 1e308, float("nan"), float("inf"), [], {}, [[]], {"a": None}, [None] * 3),
    *("", "x", "[/x]", "\0", "名", "9" * 5000, {"": ""}),
)


def mutate_bytes(draw: Random, data: bytes) -> bytes:
    """One to three random changes: bits, cuts, insertions, repetitions, runs of one byte."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(_BYTE_CHANGES)(draw, found)
    return bytes(found)


def _span(draw: Random, data: bytearray) -> slice:
    start = draw.randrange(len(data) + 1)
    if draw.random() < 0.5:  # headers are where the meaning is
        start = draw.randrange(min(len(data), 256) + 1)
    return slice(start, min(len(data), start + draw.choice((1, 1, 2, 4, 8, 100, 5000))))


def _flip(draw: Random, data: bytearray) -> None:
    for _ in range(draw.choice((1, 1, 4, 16)) if data else 0):
        at = draw.randrange(min(len(data), 400) if draw.random() < 0.5 else len(data))
        data[at] ^= 1 << draw.randrange(8)


def _cut(draw: Random, data: bytearray) -> None:
    del data[draw.randrange(len(data) + 1) :]


def _remove(draw: Random, data: bytearray) -> None:
    del data[_span(draw, data)]


def _fill(draw: Random, data: bytearray) -> None:
    span = _span(draw, data)
    data[span] = bytes([draw.choice((0, 255, 127, 128, draw.randrange(256)))]) * (span.stop - span.start)


def _insert(draw: Random, data: bytearray) -> None:
    at = _span(draw, data).start
    data[at:at] = draw.randbytes(draw.choice((1, 2, 4, 64, 3000)))


def _repeat(draw: Random, data: bytearray) -> None:
    piece, at = bytes(data[_span(draw, data)]), _span(draw, data).start
    data[at:at] = piece * draw.choice((1, 2, 50))


def _number(draw: Random, data: bytearray) -> None:
    """A length, offset or size that cannot be."""
    form, value = draw.choice(
        (("<I", 2**32 - 1), ("<Q", 2**63), (">I", 2**31), ("<H", 65535), ("<I", 0), ("<Q", 10**9))
    )
    packed = struct.pack(form, value)
    at = _span(draw, data).start
    data[at : at + len(packed)] = packed


_BYTE_CHANGES: tuple[Callable[[Random, bytearray], None], ...] = (
    _flip,
    _flip,
    _cut,
    _remove,
    _fill,
    _insert,
    _repeat,
    _number,
)


def mutate_text(draw: Random, data: bytes) -> bytes:
    """Hostile words in place of words, cells or lines; now and then raw bytes."""
    if draw.random() < 0.2:
        return mutate_bytes(draw, data)
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, word = draw.randrange(len(lines)), draw.choice(HOSTILE)
        line = lines[at]
        edges = [i for i, c in enumerate(line) if c in ',:[]{} "'] or [0]
        start = draw.choice(edges)
        stop = draw.choice([e for e in [*edges, len(line)] if e >= start])
        change = draw.randrange(6)
        if change == 0:
            lines.insert(at, word)
        elif change == 1:
            del lines[at]
            lines = lines or [""]
        elif change == 2:
            lines[at] = word
        elif change == 3:
            lines.insert(at, draw.choice(lines))
        else:
            lines[at] = line[: start + 1] + word + line[stop:]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def mutate_json(draw: Random, data: bytes) -> bytes:
    """Another value, type or key somewhere in one of the lines; now and then hostile text."""
    if draw.random() < 0.3:
        return mutate_text(draw, data)
    whole = data.decode("utf-8")
    try:
        texts = [json.dumps(json.loads(whole))]
    except ValueError:
        texts = [line for line in whole.splitlines() if line]
    at = draw.randrange(len(texts))
    value = json.loads(texts[at])
    texts[at] = json.dumps(_changed(draw, value))
    return ("\n".join(texts) + "\n").encode()


def _changed(draw: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(sorted(value))
        if draw.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _changed(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], _changed(draw, value[at]), *value[at + 1 :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and draw.random() < 0.4:
        return value + draw.choice((1, -1, 0.5, 1e9))
    return draw.choice(VALUES)


def huge_png(pixels: int = 30_000) -> bytes:
    """A PNG of a few bytes that says it has `pixels`² pixels of 16 bits."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", pixels, pixels, 16, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


def place_special(draw: Random, path: Path) -> str:
    """Put something that is no ordinary image at `path`; returns what."""
    kind = draw.choice(
        ("fifo", "zero", "sparse", "folder", "huge", "postscript", "gif", "dangling", "loop", "random")
    )
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(7 * 2**30)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        path.write_bytes(huge_png())
    elif kind == "dangling":
        path.symlink_to(path.with_name("nothing"))
    elif kind == "loop":
        path.symlink_to(path)
    else:
        start = {
            "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            "gif": b"GIF89a\x09\0\x09\0\x80\0\0",
        }
        path.write_bytes(start.get(kind, b"") + draw.randbytes(2000))
    return kind
