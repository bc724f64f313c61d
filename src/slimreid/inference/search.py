"""Who is this? Rank the samples of a gallery by their similarity to given images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from slimreid.config.model import BOTH
from slimreid.data.importing.modality_names import read_name, unclear_message
from slimreid.data.manifest import MANIFEST_NAME, ImageRef, Manifest, Sample
from slimreid.errors import ConfigError, DataError
from slimreid.files import user_cache_folder
from slimreid.inference.embedding_sets.files import SUFFIX, Embeddings, read_embeddings
from slimreid.inference.features.data import ModelData
from slimreid.inference.features.embed_data import embed_data, open_images
from slimreid.inference.features.extract import Extraction
from slimreid.inference.loaded_model import LoadedModel
from slimreid.modalities import RGB, canonical


@dataclass(frozen=True)
class Hit:
    """A sample of the gallery, as an answer to a query."""

    rank: int
    """Rank in the list, from 1."""
    similarity: float
    identity: str
    """'' where nobody knows."""
    camera: str
    paths: dict[str, Path]
    """File per modality."""


@dataclass(frozen=True)
class Answer:
    """A query and the samples of the gallery that are most similar to it, best first."""

    query: dict[str, Path]
    """File per modality."""
    hits: tuple[Hit, ...]
    searched: int
    """Different samples in the gallery."""


class KnowsModalities(Protocol):
    """Any form of a model."""

    @property
    def modalities(self) -> tuple[str, ...]:
        """Those it knows, in order."""


def open_queries(
    loaded: KnowsModalities, images: Sequence[str], modality: str | None = None, camera: str = ""
) -> ModelData:
    """Image files as samples to search for.

    Files whose names differ only in the modality (`a_rgb.png`, `a_tir.png`) are one sample, and so are all
    that are written `tir=FILE`. A file that names no modality is of `modality`: the model's only one,
    or rgb. `camera` took all of them. Raises `DataError` for a file that is not there, or two of one sample
    in the same modality, `ConfigError` for a modality that the model does not know.
    """
    usual = RGB if RGB in loaded.modalities else loaded.modalities[0]
    if modality is not None:
        usual = canonical_of(loaded, modality)
    samples: dict[str, dict[str, ImageRef]] = {}
    for word in images:
        name, equals, rest = word.partition("=")
        given = equals and not Path(word).exists()
        path = Path(rest if given else word)
        if not path.is_file():
            raise DataError(f"{path}: no such image; give a file such as a.png or tir=a.png")
        place = path.resolve()
        named = read_name(f"{place.parent.name}/{place.name}", loaded.modalities)
        if named.unclear and modality is None and not given:
            raise DataError(unclear_message(path, named.unclear))
        found = canonical_of(loaded, name) if given else named.modality or usual
        if found not in loaded.modalities:
            raise ConfigError(f"{path}: is {found}; the model knows {', '.join(loaded.modalities)}")
        refs = samples.setdefault("" if given else f"{place.parents[1]}/{named.key}", {})
        if found in refs:
            raise DataError(f"{path} and {refs[found].path} are both the {found} image of one sample")
        refs[found] = ImageRef(place.as_posix())
    there = tuple(m for m in loaded.modalities if any(m in refs for refs in samples.values()))
    rows = [
        Sample("query", "", camera, "", {m: refs[m] for m in there if m in refs}, row=number)
        for number, refs in enumerate(samples.values(), start=1)
    ]
    root = Path(Path.cwd().anchor)  # paths are absolute
    return ModelData(Manifest(tuple(rows), there, root), root, "images", own=False)


def canonical_of(loaded: KnowsModalities, name: str) -> str:
    """The modality of a model that a word means; raises `ConfigError` with the nearest known name."""
    return name if name in loaded.modalities else canonical(name)


def open_gallery(
    loaded: LoadedModel,
    place: Path,
    feature: str = BOTH,
    modality: str | None = None,
    camera: str | None = None,
) -> tuple[Embeddings, tuple[str, ...]]:
    """Features of a gallery: a file of embeddings, a manifest or any folder of images; also gives notes.

    Features of images are kept in the user's cache folder and found again while nothing has changed. Raises
    `DataError` for a gallery that cannot be read, or embeddings of another model or feature.
    """
    if place.suffix.lower() == SUFFIX:
        found = read_embeddings(place)
        if found.fingerprint != loaded.feature_fingerprint:
            raise DataError(
                f"{place}: features of another model ({found.fingerprint[:12]}, not "
                f"{loaded.feature_fingerprint[:12]}); embed the images again with this one"
            )
        if found.feature != feature:
            raise DataError(f"{place}: has the feature '{found.feature}', not '{feature}'; give --feature")
        return found, ()
    is_bare = place.is_dir() and not (place / MANIFEST_NAME).is_file()  # a manifest says what its images are
    data, _ = open_images(loaded, place, modality if is_bare else None, camera)
    key = hashlib.sha256(f"{loaded.feature_fingerprint}\0{place.resolve()}".encode(errors="surrogateescape"))
    folder = user_cache_folder() / "search" / key.hexdigest()[:24]
    cache: Path | None = None
    with suppress(OSError):  # features are not kept where it cannot be made
        folder.mkdir(parents=True, exist_ok=True)
        cache = folder
    return embed_data(loaded, data, feature=feature, extraction=Extraction(cache=cache))


def search(queries: Embeddings, gallery: Embeddings, top: int = 10) -> list[Answer]:
    """The `top` samples of the gallery that are most similar to each query.

    The files of a query itself are no answer, nor are samples that share no modality with it. A sample
    that the gallery lists twice (as query and gallery of a test set) is one answer. Samples of equal
    similarity keep the order of the gallery.
    """
    scores = queries.compare(gallery)
    files, asked = _files(gallery), _files(queries)
    once = {tuple(paths.values()): number for number, paths in reversed(list(enumerate(files)))}
    answers = []
    for number, own in enumerate(asked):
        chosen = [i for places, i in once.items() if not {*own.values()} & {*places}]
        allowed = sorted(i for i in chosen if not np.isnan(scores[number, i]))
        best = sorted(allowed, key=lambda i: -scores[number, i])[:top]
        hits = [
            Hit(rank, float(scores[number, i]), gallery.identities[i], gallery.cameras[i], files[i])
            for rank, i in enumerate(best, start=1)
        ]
        answers.append(Answer(own, tuple(hits), len(once)))
    return answers


def _files(embeddings: Embeddings) -> list[dict[str, Path]]:
    root = Path(embeddings.root)
    return [{m: root / path for m, path in paths.items()} for paths in embeddings.paths]
