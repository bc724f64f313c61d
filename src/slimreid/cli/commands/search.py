"""`slimreid search`: who is this?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from slimreid.cli.console import console, say, table
from slimreid.cli.options.images import SearchOptions
from slimreid.data.images.decode import read_images
from slimreid.data.manifest import ImageRef
from slimreid.devices import choose_device
from slimreid.errors import ConfigError, ModelError
from slimreid.files import check_writable
from slimreid.inference.embed_dataset import embed_dataset
from slimreid.inference.embedding_files import SUFFIX, read_embeddings
from slimreid.inference.load import LoadedModel, load
from slimreid.inference.model_file import MODEL_NAME, read_card
from slimreid.inference.search import Answer, open_gallery, open_queries
from slimreid.inference.search import search as rank
from slimreid.visual.datasets.contact_sheet import ContactRow
from slimreid.visual.datasets.views import save_sheet


def search(options: SearchOptions) -> None:
    """Find the samples of a gallery that are most similar to given images."""
    if options.picture is not None:
        check_writable(options.picture)
    model = options.model or _find_model(options.in_)
    loaded = load(model, choose_device(options.device))
    queries = open_queries(loaded, options.images, options.modality)
    gallery, notes = open_gallery(loaded, options.in_, options.feature, options.modality)
    wanted, _ = embed_dataset(loaded, queries, feature=options.feature)
    answers = rank(wanted, gallery, options.top)
    if options.json:
        print(json.dumps([_plain(answer) for answer in answers], indent=2, ensure_ascii=False))
    else:
        for answer in answers:
            _print(answer)
        for note in notes:
            say(f"note: {note}")
        if options.model is None:
            say(f"model: {model}")
    if options.picture is not None:
        _draw(answers, loaded, options.picture)
        if not options.json:
            say(f"picture: {options.picture}")


def _find_model(gallery: Path) -> Path:
    """The model of `runs` that made an embeddings file, or the newest; raises `ConfigError` without one."""
    found = sorted(Path("runs").glob(f"*/{MODEL_NAME}"), key=lambda path: path.stat().st_mtime, reverse=True)
    if gallery.suffix.lower() == SUFFIX:
        wanted = read_embeddings(gallery).fingerprint
        found = [path for path in found if _fingerprint(path) == wanted]
    if not found:
        raise ConfigError("there is no fitting model in the folder 'runs'; name one with --model")
    return found[0].parent


def _fingerprint(path: Path) -> str | None:
    try:
        return read_card(path)[1]
    except ModelError:
        return None


def _print(answer: Answer) -> None:
    """One query as a table."""
    say(f"{_names(answer.query)} among {answer.searched:,} samples:")
    has_names = any(hit.identity for hit in answer.hits)
    has_cameras = any(hit.camera for hit in answer.hits)
    columns = ["rank", "similarity", *["identity"] * has_names, *["camera"] * has_cameras, "image"]
    rows = [
        [
            str(hit.rank),
            f"{hit.similarity:.4f}",
            *[hit.identity] * has_names,
            *[hit.camera] * has_cameras,
            _names(hit.paths),
        ]
        for hit in answer.hits
    ]
    console.print(table(columns, rows))


def _names(paths: dict[str, Path]) -> str:
    """The first file, and in which other modalities the sample is there."""
    first, *others = paths.items()
    place = first[1]
    shown = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
    return f"{shown}{''.join(f' +{name}' for name, _ in others)}"


def _plain(answer: Answer) -> dict[str, object]:
    return {
        "query": {name: str(path) for name, path in answer.query.items()},
        "hits": [
            {
                "rank": hit.rank,
                "similarity": hit.similarity,
                "identity": hit.identity,
                "camera": hit.camera,
                "paths": {name: str(path) for name, path in hit.paths.items()},
            }
            for hit in answer.hits
        ],
    }


def _draw(answers: Sequence[Answer], loaded: LoadedModel, path: Path) -> None:
    """A row per query: itself, then what was found."""
    windows = loaded.config.data.windows or {}
    used = {
        name
        for answer in answers
        for paths in [answer.query, *(h.paths for h in answer.hits)]
        for name in paths
    }
    rows = []
    for answer in answers:
        cells = [_pictures(paths, windows) for paths in [answer.query, *(hit.paths for hit in answer.hits)]]
        captions = ["query", *(f"{h.rank} · {h.similarity:.3f} {h.identity}".strip() for h in answer.hits)]
        rows.append(ContactRow(next(iter(answer.query.values())).stem, list(cells), captions))
    save_sheet(rows, [m for m in loaded.modalities if m in used], path, title="search")


def _pictures(
    paths: dict[str, Path], windows: dict[str, tuple[float, float]]
) -> dict[str, Image.Image | None]:
    images = {name: ImageRef(path.as_posix()) for name, path in paths.items()}
    return {name: Image.fromarray(p) for name, p in read_images(images, Path("/"), windows).items()}
