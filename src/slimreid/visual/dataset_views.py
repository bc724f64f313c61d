"""Pictures of datasets and of training batches."""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from string import Template

import numpy as np
from PIL import Image
from torch import Tensor

from slimreid.data.dataset import ReIDDataset
from slimreid.data.decode import read_images
from slimreid.data.manifest import Manifest, Sample, Split
from slimreid.errors import ConfigError, DataError
from slimreid.files import atomic_write, natural_key, write_text
from slimreid.modalities import describe
from slimreid.types import ModalBatch
from slimreid.visual.contact_sheet import ContactRow, draw_contact_sheet


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
        cells = [
            {m: Image.fromarray(p) for m, p in read_images(s.images, manifest.root).items()} for s in members
        ]
        rows.append(ContactRow(name, list(cells), [f"camera {s.camera}" for s in members]))
    return rows


def _spread_over_cameras(samples: Sequence[Sample], rng: np.random.Generator) -> list[Sample]:
    """Samples in an order in which the first ones come from different cameras."""
    turn: dict[str, int] = defaultdict(int)
    ranked = []
    for i in rng.permutation(len(samples)):
        camera = samples[i].camera
        ranked.append((turn[camera], int(i)))
        turn[camera] += 1
    return [samples[i] for _, i in sorted(ranked)]


def batch_rows(batch: ModalBatch, dataset: ReIDDataset) -> list[ContactRow]:
    """The samples of a batch as the model sees them, one row per identity."""
    config = dataset.transform.config

    def picture(image: Tensor) -> Image.Image:
        pixels = ((image * config.std + config.mean) * 255).clamp(0, 255).round()
        return Image.fromarray(pixels.byte().permute(1, 2, 0).numpy())

    names = {number: name for name, number in dataset.codebook.identity.items()}
    cameras = {number: name for name, number in dataset.codebook.camera.items()}
    rows: dict[int, ContactRow] = {}
    for b, identity in enumerate(batch.identity.tolist()):
        row = rows.setdefault(identity, ContactRow(names[identity], [], []))
        row.cells.append(
            {m: picture(batch.images[m][b]) for i, m in enumerate(batch.modalities) if batch.present[b, i]}
        )
        row.captions.append(f"camera {cameras[int(batch.camera[b])]}")
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
    sections = []
    for row in rows:
        samples = "".join(
            _figure(cell, modalities, c) for cell, c in zip(row.cells, row.captions, strict=True)
        )
        sections.append(f"<section><h2>{html.escape(row.label)}</h2><div>{samples}</div></section>")
    return _PAGE.substitute(
        title=html.escape(title),
        note=html.escape(note),
        legend=html.escape(" · ".join(describe(m).label for m in modalities)),
        body="\n".join(sections),
    )


def _figure(cell: object, modalities: Sequence[str], caption: str) -> str:
    assert isinstance(cell, dict)
    parts = []
    for name in modalities:
        image = cell.get(name)
        label = html.escape(describe(name).label)
        if image is None:
            parts.append(f'<span class="absent" title="{label}: absent">no {html.escape(name)}</span>')
            continue
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=92)
        data = base64.b64encode(buffer.getvalue()).decode()
        parts.append(f'<img alt="{label}" title="{label}" src="data:image/jpeg;base64,{data}">')
    return f"<figure>{''.join(parts)}<figcaption>{html.escape(caption)}</figcaption></figure>"


_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --line: #8885; }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem; }
h1 { font-size: 1.2rem; } h2 { font-size: .95rem; margin: 0 0 .4rem; }
p { opacity: .75; margin: .2rem 0 1rem; }
section { border-top: 1px solid var(--line); padding: .8rem 0; }
section div { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .8rem; opacity: .75; }
img, .absent { height: 8rem; margin-right: 2px; vertical-align: top; border-radius: 3px; }
.absent { display: inline-flex; width: 4rem; align-items: center; justify-content: center; font-size: .75rem;
  opacity: .6; background: repeating-linear-gradient(45deg, #8882 0 6px, transparent 6px 12px); }
</style></head><body>
<h1>$title</h1><p>Each group, left to right: $legend. $note</p>
$body
</body></html>
""")
