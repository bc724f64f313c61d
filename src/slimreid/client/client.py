"""The client: search, identify, enrol and edit a gallery that a service serves."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import numpy as np

from slimreid.arrays import Floats
from slimreid.client.results import (
    Changed,
    EnrolledSample,
    Job,
    read_answers,
    read_identifications,
    read_result,
)
from slimreid.client.transport import Part, ServerError, Transport
from slimreid.data.images.decode import MAX_BYTES
from slimreid.errors import DataError
from slimreid.files import open_regular
from slimreid.gallery.answers import Answer
from slimreid.gallery.identification import Identification

TOKEN = "SLIMREID_TOKEN"
"""Variable of the environment with the token."""

Sample: TypeAlias = "Mapping[str, str | Path | bytes]"
"""{modality: image file or its content}."""
Field: TypeAlias = "str | int | float | bool | Sequence[str] | Sequence[int] | None"

_AT_ONCE = 16
"""Samples sent to a job at once."""
_ROOM = 0.9
"""Share of the largest body that images may fill; the rest is for names and labels."""


class Client:
    """A gallery that a service serves. Use it in a `with` block, or close it; one per thread."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 60.0, retries: int = 5
    ) -> None:
        """Speak to a service; nothing is sent yet.

        Args:
            url: Address, such as `http://127.0.0.1:8000`.
            token: None = that in the environment, `SLIMREID_TOKEN`, where there is one.
            timeout: Seconds to wait for an answer.
            retries: How often a request is sent again that was refused for being one too many, or (where
                this does no harm) that nobody answered.
        """
        self._transport = Transport(url, token or os.environ.get(TOKEN), timeout, retries)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._transport.close()

    def status(self) -> dict[str, Any]:
        """State of the service: rows, model, calibration, limits, load."""
        return dict(self._transport.get("/v1/status"))

    def embed(self, samples: Sequence[Sample], *, query_camera: str = "") -> Floats:
        """Features (B, D) of samples, L2-normalised; `query_camera` took them."""
        fields = _fields({"query_camera": query_camera or None})
        found = self._transport.send_form("/v1/embed", [*_parts(samples), *fields])
        return np.array([sample["embedding"] for sample in found["samples"]], dtype=np.float32)

    def search(
        self, samples: Sequence[Sample], *, k: int = 10, pooled: bool = False, **options: Field
    ) -> list[Answer]:
        """The k best rows for each sample; `identities=True` for identities.

        Further options: camera, identity, group, modality, id (lists), since, until; query_camera, which took
        the samples.
        """
        fields = {"k": k, "pooled": pooled, **options}
        found = self._transport.send_form("/v1/search", [*_parts(samples), *_fields(fields)])
        return read_answers(found, _names(samples, pooled))

    def identify(
        self, samples: Sequence[Sample], *, rate: float | None = None, pooled: bool = False, **options: Field
    ) -> list[Identification]:
        """Who each sample shows, at a rate of false positives (FPIR); options as for `search`."""
        fields = {"rate": rate, "pooled": pooled, **options}
        found = self._transport.send_form("/v1/identify", [*_parts(samples), *_fields(fields)])
        return read_identifications(found, _names(samples, pooled))

    def enrol(
        self, samples: Sequence[Sample], *, dry_run: bool = False, **labels: Field
    ) -> list[EnrolledSample]:
        """Enrol a few samples; they are on disk when this returns, and never there twice.

        Labels: identity, group, camera, time.
        """
        parts = [*_parts(samples), *_fields({"dry_run": dry_run, **labels})]
        found = self._transport.send_form("/v1/enrol", parts)
        return [read_result(EnrolledSample, sample) for sample in found["samples"]]

    def begin_enrolment(self, **labels: Field) -> Job:
        """Begin an enrolment in many parts; it is one entry of the log and survives a restart."""
        values = {name: value for name, value in labels.items() if value is not None}
        return read_result(Job, self._transport.send("/v1/jobs", values))

    def add_samples(
        self, job: str, samples: Sequence[Sample], labels: Sequence[Mapping[str, str]] = ()
    ) -> Job:
        """Give samples to an enrolment, each with labels of its own; kept on disk when this returns."""
        own = [
            Part(f"{name}.{number}", value)
            for number, given in enumerate(labels)
            for name, value in given.items()
            if value
        ]
        path = f"/v1/jobs/{quote(job)}/samples"
        return read_result(Job, self._transport.send_form(path, [*_parts(samples), *own]))

    def finish_enrolment(self, job: str) -> Job:
        """Say that no more samples will come."""
        return read_result(Job, self._transport.send(f"/v1/jobs/{quote(job)}/finish", {}, repeatable=True))

    def job(self, job: str) -> Job:
        """A job as it is now."""
        return read_result(Job, self._transport.get(f"/v1/jobs/{quote(job)}"))

    def wait(self, job: str, every: float = 0.2) -> Iterator[Job]:
        """The job again and again until it is over."""
        while True:
            found = self.job(job)
            yield found
            if found.is_over:
                return
            time.sleep(every)

    def enrol_many(
        self, samples: Iterable[Sample], labels: Iterable[Mapping[str, str]] | None = None
    ) -> Iterator[Job]:
        """Enrol any number of samples as one job; the job as it goes on, at last when it is over.

        Raises `ServerError` where the job fails.
        """
        limits = self.status()["limits"]
        job = self.begin_enrolment()
        for part, said in _in_parts(samples, labels, limits["images"], limits["body_bytes"]):
            yield self.add_samples(job.id, part, said)
        self.finish_enrolment(job.id)
        for now in self.wait(job.id):
            job = now
            yield now
        if job.state != "done":
            raise ServerError(f"the enrolment {job.state}: {'; '.join(job.problems[-1:])}")

    def identities(self) -> dict[str, int]:
        """Identity -> its rows, by name."""
        found: dict[str, int] = {}
        after: str | None = ""
        while after is not None:
            page = self._transport.get(f"/v1/identities?{urlencode({'after': after, 'limit': 1000})}")
            found |= {item["name"]: item["rows"] for item in page["identities"]}
            after = page["next"]
        return found

    def rename(self, old: str, new: str, *, dry_run: bool = False) -> Changed:
        """Give an identity another name."""
        return self._change("identities/rename", {"old": old, "new": new}, dry_run)

    def merge(self, identities: Sequence[str], into: str, *, dry_run: bool = False) -> Changed:
        """Make several identities one."""
        return self._change("identities/merge", {"identities": list(identities), "into": into}, dry_run)

    def split(self, rows: Sequence[int], new: str, *, dry_run: bool = False) -> Changed:
        """Make some rows of an identity another one."""
        return self._change("identities/split", {"rows": list(rows), "new": new}, dry_run)

    def assign(self, identities: Mapping[int, str], *, dry_run: bool = False) -> Changed:
        """Give rows identities; '' = nobody knows."""
        return self._change("rows/assign", {"identities": dict(identities)}, dry_run)

    def remove(
        self,
        rows: Sequence[int] = (),
        identities: Sequence[str] = (),
        *,
        forget: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Take rows, or all rows of identities, out of the gallery; with `forget` for good."""
        values = {"rows": list(rows), "identities": list(identities), "forget": forget}
        return self._change("rows/remove", values, dry_run)

    def undo(self, steps: int = 1, *, expect: int | None = None, dry_run: bool = False) -> Changed:
        """Undo the last changes; `expect`: the entry of the log that is meant to be the last one."""
        return self._change("undo", {"steps": steps, "expect": expect}, dry_run)

    def log(self, limit: int = 50) -> list[dict[str, Any]]:
        """Changes and searches, newest first."""
        return list(self._transport.get(f"/v1/log?limit={limit}")["entries"])

    def calibration(self) -> dict[str, Any]:
        """The thresholds of the gallery."""
        return dict(self._transport.get("/v1/calibration"))

    def thumbnail(self, row: int) -> bytes:
        """The picture of a row, a JPEG."""
        return self._transport.get_bytes(f"/v1/rows/{row}/thumbnail")

    def _change(self, path: str, values: Mapping[str, Any], dry_run: bool) -> Changed:
        found = self._transport.send(f"/v1/{path}", {**values, "dry_run": dry_run})
        return read_result(Changed, found)


def _parts(samples: Sequence[Sample]) -> list[Part]:
    if not samples:
        raise DataError("there is no image to send")
    return [
        Part(f"{name}.{number}", _content(image))
        for number, sample in enumerate(samples)
        for name, image in sample.items()
    ]


def _in_parts(
    samples: Iterable[Sample],
    labels: Iterable[Mapping[str, str]] | None,
    images: int,
    body: int,
) -> Iterator[tuple[list[dict[str, bytes]], list[Mapping[str, str]]]]:
    """Samples with their labels, as many at a time as one request may hold."""
    part: list[dict[str, bytes]] = []
    said: list[Mapping[str, str]] = []
    size = count = 0
    own = iter(labels) if labels is not None else itertools.repeat({})
    for sample, given in zip(samples, own, strict=False):
        loaded = {name: _content(image) for name, image in sample.items()}
        more = sum(map(len, loaded.values()))
        if part and (len(part) == _AT_ONCE or count + len(loaded) > images or size + more > _ROOM * body):
            yield part, said
            part, said, size, count = [], [], 0, 0
        part.append(loaded)
        said.append(given)
        size, count = size + more, count + len(loaded)
    if part:
        yield part, said


def _content(image: str | Path | bytes) -> bytes:
    if isinstance(image, bytes):
        return image
    with open_regular(Path(image), MAX_BYTES) as file:
        return file.read(MAX_BYTES)


def _fields(values: Mapping[str, Field]) -> list[Part]:
    parts = []
    for name, value in values.items():
        listed = [value] if isinstance(value, (str, int, float)) else list(value or ())
        parts += [Part(name, str(item).lower() if isinstance(item, bool) else str(item)) for item in listed]
    return parts


def _names(samples: Sequence[Sample], pooled: bool) -> list[str]:
    names = []
    for number, sample in enumerate(samples):
        image = next(iter(sample.values()))
        names.append(f"query {number}" if isinstance(image, bytes) else str(image))
    return [f"{names[0]} and {len(names) - 1} more"] if pooled and len(names) > 1 else names
