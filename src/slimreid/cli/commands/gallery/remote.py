"""`slimreid gallery search`, `identify` and `enrol` on a gallery that a service serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimreid.cli.options.gallery import EmbeddingOptions, GallerySearchOptions, IdentifyOptions, QueryOptions
from slimreid.client import Client, Job
from slimreid.errors import ConfigError
from slimreid.gallery.answers import Answer
from slimreid.gallery.enrolment.sources import Source, SourceSample
from slimreid.gallery.identification import Identification
from slimreid.inference.search import open_queries
from slimreid.modalities import parse_subset
from slimreid.progress import progress


@dataclass(frozen=True)
class ServedModel:
    """What must be known of the model behind a service."""

    modalities: tuple[str, ...]


def is_server(place: str) -> bool:
    """Whether a gallery is behind a service."""
    return place.startswith(("http://", "https://"))


def connect(options: EmbeddingOptions) -> tuple[Client, ServedModel]:
    """A client and the model behind it; raises `ConfigError` for options that the service decides."""
    for name in ("model", "device", "by"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} is chosen by the service at {options.gallery}; leave it out")
    client = Client(options.gallery)
    return client, ServedModel(tuple(client.status()["model"]["modalities"]))


def search_server(options: GallerySearchOptions) -> list[Answer]:
    """The rows or identities that are most similar to given images."""
    if options.picture is not None:
        raise ConfigError("--picture needs the gallery itself; a service shows pictures on its page")
    client, model = connect(options)
    with client:
        question, samples = _question(options, model), _samples(model, options)
        return client.search(samples, k=options.top, identities=options.identities, **question)


def identify_server(options: IdentifyOptions) -> list[Identification]:
    """Who given images show."""
    client, model = connect(options)
    with client:
        return client.identify(_samples(model, options), rate=options.rate, **_question(options, model))


def enrol_server(client: Client, source: Source) -> Job:
    """Enrol the samples of a source as one job; the job when it is over."""
    for sample in source.samples:
        if any(ref.box or ref.window for ref in sample.images.values()):
            raise ConfigError(
                f"{sample.name}: boxes and windows are not sent to a service; cut the images, or enrol into "
                "the gallery's file"
            )
    images = [{name: Path(ref.path) for name, ref in sample.images.items()} for sample in source.samples]
    labels = [_labels(sample) for sample in source.samples]
    *_, last = client.enrol_many(progress(images, "sending"), labels)
    return last


def _labels(sample: SourceSample) -> dict[str, str]:
    return {
        "identity": sample.identity,
        "group": sample.group,
        "camera": sample.camera,
        "time": "" if sample.time is None else repr(sample.time),
    }


def _samples(model: ServedModel, options: QueryOptions) -> list[Mapping[str, Path]]:
    found = open_queries(model, options.images, options.modality).manifest.samples
    return [{name: Path(ref.path) for name, ref in sample.images.items()} for sample in found]


def _question(options: QueryOptions, model: ServedModel) -> dict[str, Any]:
    """How the samples are asked about, and which rows are searched."""
    names = parse_subset(options.modalities, model.modalities) if options.modalities else ()
    return {
        "pooled": options.together,
        "query_camera": options.query_camera or None,
        "id": options.id,
        "identity": options.identity,
        "group": options.group,
        "camera": options.camera,
        "since": options.since,
        "until": options.until,
        "modality": names,
    }
