"""Hostile requests to the service: an endless, seeded stream of them.

Wrong types, huge numbers, broken JSON, traversal in every field, hostile images and forms, odd headers, wrong
tokens. None of them may be answered with 500, show anything of the code, or write outside the gallery.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

BOUNDARY = "limit"
FORM = f"multipart/form-data; boundary={BOUNDARY}"

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, 1e-320, "",
    " ", "a", "\x00", "\n", "\x7f", "\u202e", "\ud800", "ä" * 300, "x" * 100_000, "../../etc/passwd",
    "..\\..\\windows", "/etc/passwd", "file:///etc/passwd", "%2e%2e%2f", "'; DROP TABLE rows; --",
    "<script>alert(1)</script>", "{{7*7}}", "${jndi:ldap://x}", "nan", "inf", "-inf", "1e999", "0x10",
    "2026-99-99", "9" * 5000, "1" * 39, [], [[]], [None], [1] * 5000, {}, {"a": {}}, {"": ""}, [{}],
)  # fmt: skip
"""Values that are put where others belong."""

BODIES: Mapping[str, Mapping[str, Any]] = {
    "/v1/session": {"token": "srid_x"},
    "/v1/calibration": {"rates": [0.5]},
    "/v1/identities/rename": {"old": "nobody", "new": "somebody", "dry_run": True},
    "/v1/identities/merge": {"identities": ["nobody"], "into": "somebody", "dry_run": True},
    "/v1/identities/split": {"rows": [1], "new": "somebody", "dry_run": True},
    "/v1/rows/assign": {"identities": {"1": "somebody"}, "dry_run": True},
    "/v1/rows/remove": {"rows": [1], "identities": [], "forget": False, "dry_run": True},
    "/v1/undo": {"steps": 1, "expect": 1, "dry_run": True},
}
"""Routes that take JSON, with a body that changes nothing."""
QUERIES: Mapping[str, Sequence[str]] = {
    "/v1/identities": ("query", "after", "limit"),
    "/v1/rows": ("camera", "identity", "modality", "group", "id", "since", "until", "after", "limit"),
    "/v1/rows/1/thumbnail": ("modality",),
    "/v1/rows/1/image": ("modality",),
    "/v1/clusters": ("rate", "threshold"),
    "/v1/log": ("before", "limit"),
}
FORMS: Mapping[str, Sequence[str]] = {
    "/v1/embed": (),
    "/v1/search": ("k", "identities", "pooled", "camera", "since", "modality", "id"),
    "/v1/identify": ("rate", "k", "until", "identity"),
    "/v1/patches": (),
    "/v1/enrol": ("identity", "camera", "time", "group", "dry_run", "identity.0", "time.0"),
    "/v1/jobs/0000000000000000/samples": ("identity",),
}
PLACES = ("/", "/v1/", "/v1/rows/{}", "/v1/rows/{}/thumbnail", "/v1/jobs/{}", "/v1/jobs/{}/events", "/{}")
STEPS = (
    "..", "../..", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "....//", "%00", "%c0%ae%c0%ae", "a" * 3000, "-1",
    "0", "1e3", "99999999999999999999", "nul", "~root", "%5c..%5c", "index.html%00.png", "\u2025", "1;ls",
    "tokens.json", ".git/config", "%252e%252e%252f", "people.gallery", "1/../../tokens.json", "0" * 16,
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """A hostile request."""

    method: str
    path: str
    """With query, as it is sent."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def attacks(
    seed: int, modalities: Sequence[str], tokens: Mapping[str, str], revoked: Sequence[str] = ()
) -> Iterator[Attack]:
    """Hostile requests without end; `tokens`: role -> token, most come with that of an admin.

    `revoked`: tokens that are not valid any more.
    """
    rng = random.Random(seed)
    admin = {"Authorization": f"Bearer {tokens['admin']}"} if tokens else {}
    kinds: list[Callable[[], Attack]] = [
        lambda: _json(rng, admin),
        lambda: _query(rng, admin),
        lambda: _place(rng, admin),
        lambda: _form(rng, admin, modalities),
        lambda: _image(rng, admin, modalities),
        lambda: _header(rng, admin),
        lambda: _token(rng, tokens, revoked),
    ]
    for kind in itertools.cycle(kinds):
        yield kind()


def _json(rng: random.Random, headers: Mapping[str, str]) -> Attack:
    path = rng.choice(list(BODIES))
    body: Any = dict(BODIES[path])
    way = rng.randrange(8)
    if way == 0:
        body = rng.choice(NASTY)
    elif way == 1:
        body[str(rng.choice(NASTY))[:500]] = rng.choice(NASTY)
    elif way == 2:
        body.pop(rng.choice(list(body)))
    else:
        body[rng.choice(list(body))] = rng.choice(NASTY)
    # Whatever it is, it must not really change much: the service is looked at afterwards.
    # (Without the field, and with any zero, it would be done.)
    if isinstance(body, dict) and "dry_run" in BODIES[path] and body.get("dry_run", False) in (False, 0):
        body["dry_run"] = True
    content = json.dumps(body).encode()
    if way == 7:
        content = rng.choice(
            [content[: len(content) // 2], b"[" * 50_000, b"{" * 50_000, b'{"a":' * 9_000, b"\xff\xfe{}",
             b"NaN", b'{"steps": 1e400}', b"\x00" * 100, b'{"old": "\\ud800", "new": "x"}',
             b'{"steps":1,"steps":2}']
        )  # fmt: skip
    kind = rng.choice(["application/json"] * 8 + ["text/plain", "application/xml", FORM, ""])
    return Attack("POST", path, content, {**headers, "Content-Type": kind})


def _query(rng: random.Random, headers: Mapping[str, str]) -> Attack:
    path = rng.choice(list(QUERIES))
    words = []
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([*QUERIES[path], "x", ""])
        value = str(rng.choice(NASTY))[:2000]
        words.append(f"{name}={quoted(value)}")
    return Attack("GET", f"{path}?{'&'.join(words)}", b"", headers)


def _place(rng: random.Random, headers: Mapping[str, str]) -> Attack:
    place = rng.choice(PLACES)
    step = rng.choice(STEPS)
    step = step if step.isascii() else quoted(step)
    path = place.format(step) if "{}" in place else f"{place}{step}"
    method = rng.choice(["GET", "GET", "GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"])
    return Attack(method, path, b"", headers)


def quoted(text: str) -> str:
    """Text as an address holds it, also what is not UTF-8."""
    return "".join(
        letter if letter.isalnum() and letter.isascii() else "".join(f"%{byte:02x}" for byte in raw)
        for letter in text
        for raw in [letter.encode("utf-8", "surrogatepass")]
    )


def part(name: str, content: bytes, filename: str | None = "a.png") -> bytes:
    """A part of a form."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'.encode("utf-8", "surrogatepass")
    if filename is not None:
        head += f'; filename="{filename}"'.encode("utf-8", "surrogatepass")
    return head + b"\r\n\r\n" + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def _form(rng: random.Random, headers: Mapping[str, str], modalities: Sequence[str]) -> Attack:
    path = rng.choice(list(FORMS))
    body = part(rng.choice(modalities), good_image(rng.randrange(8)))
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([*FORMS[path], "x", "rgb.99999", "rgb.-1", "../rgb", "tir.0.0", "", "identity.5"])
        value = str(rng.choice(NASTY))[:70_000].encode("utf-8", "surrogatepass")
        body += part(name, value, rng.choice([None, None, "../../a.png", "\x00", "a" * 500]))
    body += END
    way = rng.randrange(7)
    if way == 0:
        body = body[: rng.randrange(len(body))]
    elif way == 1:
        body = bytes(b if rng.random() > 0.01 else rng.randrange(256) for b in body[:5000])
    elif way == 2:  # more images than any request may hold
        body = b"".join(part(f"{rng.choice(modalities)}.{n}", good_image(n % 8)) for n in range(80)) + END
    kind = rng.choice([FORM] * 6 + ["multipart/form-data", "multipart/form-data; boundary=", "x/y"])
    kind = rng.choice([kind] * 4 + [f"multipart/form-data; boundary={'b' * 400}", f"{FORM}; charset=utf-7"])
    return Attack("POST", path, body, {**headers, "Content-Type": kind})


def _image(rng: random.Random, headers: Mapping[str, str], modalities: Sequence[str]) -> Attack:
    path = rng.choice(list(FORMS)[:5])
    content = hostile_image(rng)
    body = part(rng.choice(modalities), content)
    if rng.random() < 0.5:
        body += part(f"{rng.choice(modalities)}.1", hostile_image(rng))
    extra = part("dry_run", b"true", None) if path == "/v1/enrol" else b""
    return Attack("POST", path, body + extra + END, {**headers, "Content-Type": FORM})


def good_image(number: int, kind: str = "PNG", size: tuple[int, int] = (8, 16)) -> bytes:
    """The content of a small image file that is as it should be."""
    values = np.random.default_rng(number).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, kind)
    return buffer.getvalue()


def hostile_image(rng: random.Random) -> bytes:
    """A file that is no good image: cut off, altered, huge by its header, of a strange kind."""
    way = rng.randrange(8)
    kind = rng.choice(["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF"])
    content = bytearray(good_image(rng.randrange(8), kind))
    if way == 0:
        return bytes(content[: rng.randrange(len(content))])
    if way in (1, 2):
        for _ in range(rng.randrange(1, 12)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if way == 3:
        return huge_png(rng.choice([(60_000, 60_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 0), (5000, 5000)]))
    if way == 4:
        return rng.choice(
            [b"", b"\x00" * 1000, b"%!PS-Adobe-3.0\n(%pipe%id) (w) file", b"<svg onload='x'/>",
             b"\x80\x04K\x01.", b"GIF89a" + b"\xff" * 50, b"RIFF\xff\xff\xff\xffWEBP", b"\xff\xd8\xff" * 500,
             b"II*\x00" + b"\xff" * 200]
        )  # fmt: skip
    if way == 5:
        return many_scans()
    if way == 6:
        return bytes(content) * 3
    return rng.randbytes(rng.randrange(1, 3000))


def huge_png(size: tuple[int, int]) -> bytes:
    """A PNG of a few bytes that claims to be of a size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def many_scans() -> bytes:
    """A JPEG that asks to be gone through again and again."""
    content = good_image(1, "JPEG")
    start = content.index(b"\xff\xda")
    return content[:start] + content[start:-2] * 150 + b"\xff\xd9"


def _header(rng: random.Random, headers: Mapping[str, str]) -> Attack:
    name = rng.choice(
        ["Cookie", "Origin", "Sec-Fetch-Site", "Host", "Accept", "Content-Type", "Authorization", "Range",
         "X-Forwarded-For", "X-Forwarded-Host", "If-None-Match", "If-Modified-Since", "Transfer-Encoding",
         "Content-Encoding", "Expect", "Upgrade", "X-HTTP-Method-Override", "Referer", "Accept-Language"]
    )  # fmt: skip
    value = rng.choice(
        ["", "a", "a" * 4000, "../..", "slimreid_session=x", "slimreid_session=" + "x" * 3000, "Bearer ",
         "Basic YTpi", "null", "http://evil", "[", "127.0.0.1:99999", "bytes=0-,0-,0-", "bytes=-1",
         "chunked,x", "gzip", "\x80\xff", "100-continue", "websocket", '"' * 50, "Bearer " + "\xe9" * 40, "*",
         "cross-site", "multipart/form-data; boundary=\"", "application/json; charset=\xff", ";;;",
         "Thu, 99 Foo 9999"]
    )  # fmt: skip
    path = rng.choice(["/", "/v1/status", "/v1/rows", "/v1/session", "/v1/search", "/v1/undo", "/v1/metrics"])
    method = rng.choice(["GET", "POST", "DELETE"])
    body = b'{"dry_run": true}' if method == "POST" else b""
    return Attack(method, path, body, {**headers, name: value})


def _token(rng: random.Random, tokens: Mapping[str, str], revoked: Sequence[str]) -> Attack:
    path = rng.choice([*BODIES, *QUERIES, *FORMS, "/v1/jobs", "/v1/status", "/v1/cameras"])
    wrong = [
        "",
        "srid_",
        "srid_" + "a" * 43,
        "x" * 3000,
        *(token[:-1] for token in tokens.values()),
        *revoked,
    ]
    return Attack(
        rng.choice(["GET", "POST", "DELETE"]), path, b"{}", {"Authorization": f"Bearer {rng.choice(wrong)}"}
    )
