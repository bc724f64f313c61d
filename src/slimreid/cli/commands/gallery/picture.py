"""Pictures of what commands of a gallery found: rank sheets, kept patches on request, proposed identities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from slimreid.data.images.decode import read_pictures
from slimreid.data.manifest import ImageRef, Manifest, Sample
from slimreid.errors import DataError
from slimreid.files import atomic_write
from slimreid.gallery.answers import Answer
from slimreid.gallery.clusters import Proposal
from slimreid.gallery.enrolment.images import split_thumbnail
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.queries import Query
from slimreid.gallery.store.rows import Row
from slimreid.inference.features.data import ModelData
from slimreid.inference.loaded_model import LoadedModel
from slimreid.visual.datasets.contact_sheet import ContactRow
from slimreid.visual.datasets.views import save_sheet
from slimreid.visual.patches.kept_patches import dim_dropped
from slimreid.visual.patches.sample_views import open_sample
from slimreid.visual.ranks.rank_lists import FoundItem, Pictures, RankList
from slimreid.visual.ranks.rank_sheet import draw_rank_lists

ON_PAGE = 8
"""Rows of a proposal that are drawn."""


def draw_answers(
    gallery: Gallery,
    loaded: LoadedModel,
    query: Query,
    answers: Sequence[Answer],
    path: Path,
    *,
    patches: bool = False,
) -> None:
    """Write a rank sheet; rows whose files are gone are shown by their thumbnails.

    Raises `ModelError` where kept patches are asked for and the model has no token reduction.
    """
    lists = []
    for answer, images in zip(answers, query.images, strict=True):
        items = []
        for match in answer.matches:
            pictures, row = _row_pictures(gallery, loaded, match.row, patches), match.row
            items.append(FoundItem(pictures, None, match.score, row.camera, row.identity or f"row {row.id}"))
        lists.append(RankList(Path(answer.query).name, _pictures(loaded, images, patches), "", items))
    sides = [side for found in lists for side in (found.query, *(item.pictures for item in found.items))]
    used = {name for side in sides for name in side}
    sheet = draw_rank_lists(lists, [m for m in loaded.modalities if m in used])
    with atomic_write(path) as file:
        sheet.save(file, format="PNG" if path.suffix.lower() == ".png" else "JPEG")


def _row_pictures(gallery: Gallery, loaded: LoadedModel, row: Row, patches: bool) -> Pictures:
    try:
        return _pictures(loaded, row.files, patches)
    except DataError:  # the file is gone; what was kept of it is not
        kept = gallery.store.thumbnails([row.id]).get(row.id, b"")
        return split_thumbnail(kept, row.modalities)


def _pictures(loaded: LoadedModel, images: Mapping[str, Any], patches: bool) -> Pictures:
    if patches:
        return _kept_patches(loaded, images)
    return read_pictures(images, Path(), loaded.config.data.windows)


def _kept_patches(loaded: LoadedModel, images: Mapping[str, ImageRef]) -> Pictures:
    """The images of a sample as the model saw them, dropped patches dark."""
    names = tuple(name for name in loaded.modalities if name in images)
    root = Path(Path.cwd().anchor)  # paths are absolute
    sample = Sample("query", "", "", "", {name: images[name] for name in names})
    data = ModelData(Manifest((sample,), names, root), root, "images", own=False)
    found: dict[str, Image.Image | None] = {}
    for view in open_sample(loaded, data, "0").views():
        if view.modality in names and view.image is not None and view.stages:
            pixels = np.asarray(view.image.convert("RGB"))
            found[view.modality] = Image.fromarray(dim_dropped(pixels, view.stages[-1].kept, view.grid))
    return found


def draw_proposal(gallery: Gallery, proposal: Proposal, path: Path) -> None:
    """Write a page with the first rows of each identity that is proposed."""
    sheet = []
    for name, rows in proposal.rows.items():
        some = rows[:ON_PAGE]
        pictures = gallery.store.thumbnails([row.id for row in some])
        cells: list[dict[str, Image.Image | None]] = [
            dict(split_thumbnail(pictures.get(row.id, b""), row.modalities)) for row in some
        ]
        label = f"{name or 'resembles no other'} ({len(rows)})"
        sheet.append(ContactRow(label, list(cells), [f"row {row.id}" for row in some]))
    save_sheet(sheet, gallery.info.modalities, path, title="proposed identities")
