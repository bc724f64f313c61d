"""Pictures of datasets and of training batches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from slimreid.data.batches import ModalBatch
from slimreid.data.dataset import ReIDDataset
from slimreid.data.images.decode import read_pictures
from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.errors import ConfigError, DataError
from slimreid.files import atomic_write, natural_key, write_text
from slimreid.modalities import describe
from slimreid.visual.datasets.contact_sheet import ContactRow, draw_contact_sheet
from slimreid.visual.html.parts import photo, render

_HEIGHT = 256
"""Pixels of an image on a page, twice what it shows, for sharp screens."""


def dataset_rows(
    manifest: Manifest, split: Split | None = None, identities: int = 6, images: int = 4, seed: int = 0
) -> list[ContactRow]:
    """A few identities of a dataset, each as seen from different places where possible."""
    by_identity: dict[str, list[Sample]] = defaultdict(list)
    seen = set()
    for sample in manifest.samples:
        key = tuple(sample.images.values())
        if (split is None or sample.split == split) and key not in seen:  # query and gallery share images
            seen.add(key)
            by_identity[sample.identity].append(sample)
    if not by_identity:
        raise DataError(f"{manifest.root}: the manifest has no rows of split {split}")
    rng = np.random.default_rng(seed)
    names = sorted(by_identity, key=natural_key)
    chosen = sorted(rng.choice(len(names), min(identities, len(names)), replace=False).tolist())
    rows = []
    for name in (names[i] for i in chosen):
        members = _spread_over_cameras(by_identity[name], rng)[:images]
        members.sort(key=lambda s: natural_key(s.camera))
        captions = [f"camera {s.camera}" for s in members]
        rows.append(ContactRow(name, [read_pictures(s.images, manifest.root) for s in members], captions))
    return rows


def _spread_over_cameras(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    """Samples in an order in which the first ones come from different cameras."""
    turn: Counter[str] = Counter()
    ranked = []
    for i in rng.permutation(len(samples)).tolist():
        ranked.append((turn[samples[i].camera], i))
        turn[samples[i].camera] += 1
    return [samples[i] for _, i in sorted(ranked)]


def batch_rows(batch: ModalBatch, dataset: ReIDDataset) -> list[ContactRow]:
    """The samples of a batch as the model sees them, one row per identity."""
    config = dataset.transform.config

    def picture(image: Tensor) -> Image.Image:
        pixels = ((image * config.std + config.mean) * 255).clamp(0, 255).round()
        return Image.fromarray(pixels.byte().permute(1, 2, 0).numpy())

    rows: dict[str, ContactRow] = {}
    for b, number in enumerate(batch.index.tolist()):
        sample = dataset.samples[number]
        row = rows.setdefault(sample.identity, ContactRow(sample.identity, [], []))
        row.cells.append(
            {m: picture(batch.images[m][b]) for i, m in enumerate(batch.modalities) if batch.present[b, i]}
        )
        row.captions.append(f"camera {sample.camera}")
    return list(rows.values())


def save_sheet(
    rows: Sequence[ContactRow], modalities: Sequence[str], path: Path, title: str, note: str = ""
) -> None:
    """Write rows as a picture (.png, .jpg) or as a self-contained page (.html), by the file's suffix."""
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        write_text(path, sheet_page(rows, modalities, title, note))
    elif suffix in (".png", ".jpg", ".jpeg"):
        with atomic_write(path) as file:
            image = draw_contact_sheet(list(rows), list(modalities))
            image.save(file, format="PNG" if suffix == ".png" else "JPEG")
    else:
        raise ConfigError(f"{path}: a sheet is .png, .jpg or .html, not '{suffix}'")


def sheet_page(rows: Sequence[ContactRow], modalities: Sequence[str], title: str, note: str = "") -> str:
    """A contact sheet as one HTML page without outside files."""
    shown = []
    for row in rows:
        photos = [{m: photo(image, _HEIGHT) for m, image in cell.items() if image} for cell in row.cells]
        captioned = zip(photos, row.captions or [""] * len(photos), strict=True)
        samples = [{"images": images, "caption": caption} for images, caption in captioned]
        shown.append({"label": row.label, "samples": samples})
    labels = {name: describe(name).label for name in modalities}
    return render("sheet.html", rows=shown, modalities=labels, title=title, note=note)
