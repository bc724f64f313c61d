"""A picture of what `slimreid search` found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from slimreid.data.images.decode import read_images
from slimreid.data.manifest import ImageRef
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.search import Answer
from slimreid.visual.datasets.contact_sheet import ContactRow
from slimreid.visual.datasets.views import save_sheet


def draw_answers(answers: Sequence[Answer], loaded: LoadedModel, path: Path) -> None:
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
