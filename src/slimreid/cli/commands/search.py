"""`slimreid search`: who is this?"""

from __future__ import annotations

from pathlib import Path

from slimreid.cli.console import console, print_json, say, table
from slimreid.cli.options.images import SearchOptions
from slimreid.config.model import DEFAULT_MODEL
from slimreid.errors import ConfigError, ModelError
from slimreid.extras import explain_missing
from slimreid.files import check_writable
from slimreid.inference.embedding_sets.files import SUFFIX, read_embeddings
from slimreid.inference.exported_card import read_exported
from slimreid.inference.features.embed_data import embed_data
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
    queries = open_queries(loaded, options.images, options.modality, options.query_camera)
    gallery, notes = open_gallery(
        loaded, options.in_, options.feature, options.modality, options.gallery_camera
    )
    wanted, more = embed_data(loaded, queries, feature=options.feature)
    answers = rank(wanted, gallery, options.top)
    if options.json:
        print_json([{"query": each.query, "hits": [vars(hit) for hit in each.hits]} for each in answers])
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
    """The built-in model; for a file of embeddings the built-in model or the run in `runs` that made it.

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
        f"{gallery}: made by a model that is neither built in nor in the folder 'runs'; name it with --model"
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
    shown = [name for name in ("identity", "camera") if any(getattr(hit, name) for hit in answer.hits)]
    rows = []
    for hit in answer.hits:
        known = (getattr(hit, name) for name in shown)
        rows.append([str(hit.rank), f"{hit.similarity:.4f}", *known, _names(hit.paths)])
    console.print(table(["rank", "similarity", *shown, "image"], rows))


def _names(paths: dict[str, Path]) -> str:
    """The first file, and in which other modalities the sample is there."""
    place = next(iter(paths.values()))
    shown = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
    return f"{shown}{''.join(f' +{name}' for name in list(paths)[1:])}"
