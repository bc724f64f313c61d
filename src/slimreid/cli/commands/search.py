"""`slimreid search`: who is this?"""

from __future__ import annotations

import json
from pathlib import Path

from slimreid.cli.console import console, say, table
from slimreid.cli.options.images import SearchOptions
from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError, ModelError
from slimreid.extras import explain_missing
from slimreid.files import check_writable
from slimreid.inference.embedding_sets.files import SUFFIX, read_embeddings
from slimreid.inference.exported_card import read_exported
from slimreid.inference.features.embed_dataset import embed_dataset
from slimreid.inference.load import load, shipped_models
from slimreid.inference.model_card import CARD_NAME, MODEL_NAME, file_fingerprint, is_exported
from slimreid.inference.search import Answer, open_gallery, open_queries
from slimreid.inference.search import search as rank


def search(options: SearchOptions) -> None:
    """Find the samples of a gallery that are most similar to given images."""
    if options.picture is not None:
        check_writable(options.picture)
        with explain_missing():
            from slimreid.visual.ranks.rank_sheet import draw_answers
    model = options.model or _find_model(options.in_)
    loaded = load(model, options.device, options.threads)
    queries = open_queries(loaded, options.images, options.modality, options.camera)
    gallery, notes = open_gallery(
        loaded, options.in_, options.feature, options.modality, options.gallery_camera
    )
    wanted, more = embed_dataset(loaded, queries, feature=options.feature)
    answers = rank(wanted, gallery, options.top)
    if options.json:
        print(json.dumps([_plain(answer) for answer in answers], indent=2, ensure_ascii=False))
    else:
        for answer in answers:
            _print(answer)
        for note in dict.fromkeys([*notes, *(more if loaded.adaptation is not None else ())]):
            say(f"note: {note}")
        if options.model is None:
            say(f"model: {model}")
    if options.picture is not None:
        draw_answers(answers, loaded, options.picture)
        if not options.json:
            say(f"picture: {options.picture}")


def _find_model(gallery: Path) -> Path | str:
    """The model that ships; for a file of embeddings the one that made it, of those and of `runs`.

    Raises `ConfigError` where that is neither.
    """
    if gallery.suffix.lower() != SUFFIX:
        return DEFAULT_MODEL
    wanted = read_embeddings(gallery).fingerprint
    files = {str(p.parent): p for name in (MODEL_NAME, CARD_NAME) for p in Path("runs").glob(f"*/{name}")}
    for name, path in (shipped_models() | files).items():
        if _fingerprint(path) == wanted:
            return name
    raise ConfigError(
        f"{gallery}: made by no model that ships or is in the folder 'runs'; name it with --model"
    )


def _fingerprint(path: Path) -> str | None:
    """`feature_fingerprint` of a model file or exported model; None for one that cannot be read."""
    try:
        if is_exported(path):
            return read_exported(path).feature_fingerprint
        return file_fingerprint(path)
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
