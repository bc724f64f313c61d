"""`slimreid embed`: embeddings of many images into one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slimreid.console import console, table
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from slimreid.embedding_files import Embeddings


def embed(
    images: Path,
    model: Path | None = None,
    out: Path = Path("features.safetensors"),
    features: Literal["original", "slimmed", "fused", "both"] = "both",
    modalities: str | None = None,
    modality: str | None = None,
    split: Literal["train", "val", "query", "gallery"] | None = None,
    cameras: Literal["auto", "same", "other"] = "auto",
    device: str | None = None,
    batch: int | None = None,
    workers: int | None = None,
    skip_broken: bool = False,
) -> None:
    """Embed all images of a dataset or folder with a trained model.

    Args:
        images: Manifest, a folder with manifest.csv, or any folder of images.
        model: Folder of a run or checkpoint, or a model file.
        out: File for the features, with ids, paths, cameras and the model's fingerprint.
        features: Which embedding: one branch of the model, or both.
        modalities: Show the model only some spectra, e.g. rgb,nir or rn; default: all there are.
        modality: In a bare folder: what images are that do not say so in folder or name.
        split: Take rows of this split only.
        cameras: Whether cameras named as those of training are those; auto = in the data of the run.
        device: cpu, cuda, mps; default: a GPU if there is one.
        batch: Samples embedded at once; default: as in training.
        workers: Processes that load images; default: as in training.
        skip_broken: Leave out samples whose files cannot be read, instead of stopping.
    """
    from slimreid.embedding_files import check_suffix, embed_dataset, open_images, write_embeddings
    from slimreid.files import check_writable
    from slimreid.loading import choose_device, load
    from slimreid.modalities import canonical, parse_subset

    if model is None:  # an option, not a second path whose order one would have to remember
        raise ConfigError("which model? give --model with the folder of a run or a model file")
    check_suffix(out)
    check_writable(out)
    loaded = load(model, choose_device(device))
    default = modality if modality is None or modality in loaded.modalities else canonical(modality)
    data, how = open_images(loaded, images, default)
    started = time.monotonic()
    found, notes = embed_dataset(
        loaded,
        data,
        feature=features,
        modalities=parse_subset(modalities, loaded.modalities) if modalities else None,
        split=split,
        cameras=cameras,
        batch=batch,
        workers=workers,
        skip_broken=skip_broken or None,
    )
    seconds = time.monotonic() - started
    write_embeddings(out, found)
    _print_found(found, f"{images} ({how})", seconds)
    for note in notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print(f"written: {out}", markup=False, soft_wrap=True)


def _print_found(found: Embeddings, images: str, seconds: float) -> None:
    """Say what was embedded, and how fast."""
    identities = len(set(found.identities) - {""})
    rows: list[tuple[str, object]] = [
        ("images", images),
        ("samples", len(found)),
        ("identities", identities or "unknown"),
        ("modalities", "+".join(found.modalities)),
        ("feature", f"{found.feature}, {found.features.shape[1]:,} numbers"),
        ("model", found.fingerprint[:12]),
        ("samples/s", f"{len(found) / max(seconds, 1e-9):.1f}"),
    ]
    if found.origin:
        rows.insert(1, ("origin", found.origin))
    console.print(table(["embedding", ""], rows))
