"""Adapt a model to a site with images that nobody has labelled: `slimreid.adapt`."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slimreid.arrays import Ints
from slimreid.data.images.hashing import content_hash
from slimreid.data.manifest import Manifest, Split
from slimreid.errors import DataError
from slimreid.extras import explain_missing
from slimreid.files import file_digest, natural_key, refuse_existing
from slimreid.inference.adaptation import Adaptation, shrunk_means
from slimreid.inference.exported_card import (
    ADAPTATION_NAME,
    README_NAME,
    fresh_folder,
    read_exported,
    write_adaptation,
    write_exported,
)
from slimreid.inference.features.data import ModelData
from slimreid.inference.features.embed_data import open_images
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.load import load
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import MODEL_NAME, is_exported

if TYPE_CHECKING:
    import torch

LEAST_SAMPLES = 2
"""Of a site: fewer tell nothing of it."""
KEY_DIGITS = 15
"""Hexadecimal digits of the hash of an image that are kept: they fit a number of 64 bits."""
FEW = 50
"""Samples of a camera from which its mean is about as good as it gets; fewer are worth a note."""


def adapt(
    model: Path | str,
    data: Path | str,
    out: Path | str,
    *,
    split: Split | None = None,
    modality: str | None = None,
    extraction: Extraction | None = None,
    device: torch.device | str | None = "cpu",
    overwrite: bool = False,
) -> Adaptation:
    """Write a model that knows the mean feature of each camera of a site, and subtracts it.

    Args:
        model: A run, a model file, an exported model or the name of a built-in model. One that was adapted
            before is adapted anew.
        data: Manifest or folder of images of the site, without labels but with cameras. Keep images that the
            model will be evaluated on out of it.
        out: A model file or folder to write for a trained model, a folder for an exported one.
        split: Rows of a manifest that are used; None = all.
        modality: Of images in a bare folder whose path names none.
        extraction: How features are computed.
        device: Where torch computes; exported models take the CPU.
        overwrite: Replace a model that is there.

    Raises:
        DataError: For data that cannot be read or is too little, or a model that is there already.
        ModelError: For a model that cannot be loaded.
    """
    loaded = load(model, device)
    opened, _ = open_images(loaded, Path(data), modality)
    target = Path(out)
    if is_exported(loaded.path):
        with fresh_folder(target, overwrite) as folder:
            found = fit_adaptation(loaded, opened, split, extraction)
            _write_exported(loaded.path, folder, found)
        return found
    target = target if target.suffix == Path(MODEL_NAME).suffix else target / MODEL_NAME
    refuse_existing(target, overwrite)
    with explain_missing():
        from slimreid.inference.trained_model import TrainedModel, write_model
    assert isinstance(loaded, TrainedModel)
    found = fit_adaptation(loaded, opened, split, extraction)
    write_model(target, loaded.model.state_dict(), loaded.card, loaded.impostors, found)
    return found


def fit_adaptation(
    loaded: LoadedModel, data: ModelData, split: Split | None = None, extraction: Extraction | None = None
) -> Adaptation:
    """The means of the cameras of `data`; raises `DataError` where it has too few samples."""
    manifest = data.manifest
    rows = manifest.samples if split is None else manifest.select(split)
    if len(rows) < LEAST_SAMPLES:
        of_split = f" of split '{split}'" if split else ""
        raise DataError(f"{data.path}: too few rows{of_split} to adapt with: {len(rows)}; give more images")
    data = replace(data, manifest=manifest.with_samples(rows))
    # Cameras of the site are not those of training, whatever their names.
    options = replace(extraction or Extraction(), cameras="other")
    (features,) = extract_features(loaded.unadapted(), data, options=options).values()
    # A sample that is both query and gallery counts once.
    _, once = np.unique(features.position[features.rows], return_index=True)
    used = features.rows[once]
    samples = [rows[row] for row in used.tolist()]
    if len(samples) < LEAST_SAMPLES:
        raise DataError(f"{data.path}: too few samples with a readable image: {len(samples)}; give more")
    cameras = sorted({sample.camera for sample in samples} - {""}, key=natural_key)
    number = {name: at for at, name in enumerate(cameras)}
    named = np.array([number.get(sample.camera, -1) for sample in samples], np.int64)
    present = features.presence(used)
    means = {}
    for kind, found in features.branches.items():
        blocks = found[features.position[used]].reshape(len(used), *loaded.block_shape(kind))
        means[kind] = shrunk_means(blocks, loaded.holds(kind, present), named, len(cameras))
    counts = np.bincount(named[named >= 0], minlength=len(cameras)).astype(np.int64)
    keys = image_keys(manifest.with_samples(samples))
    return Adaptation(tuple(cameras), means, counts, keys, data.name)


def image_keys(manifest: Manifest) -> Ints:
    """The keys (n,) of the images of a manifest, ascending, each once; without those that cannot be read."""
    found = set()
    for name, image in {pair for sample in manifest.samples for pair in sample.images.items()}:
        placed = replace(image, path=str(manifest.file(image)))
        with suppress(DataError):
            found.add(int(content_hash({name: placed})[:KEY_DIGITS], 16))
    return np.array(sorted(found), np.int64)


def refuse_fitted(model: Path, adaptation: Adaptation, manifest: Manifest) -> None:
    """Raise `DataError` where a model was adapted with some images of a manifest that it is evaluated on."""
    keys = image_keys(manifest)
    both = np.intersect1d(keys, adaptation.images)
    if len(both):
        raise DataError(
            f"{model}: {len(both):,} of the {len(keys):,} images to evaluate on were used to adapt the "
            "model, so its figures would be too good; adapt it with other images (slimreid adapt --split)"
        )


def _write_exported(source: Path, folder: Path, adaptation: Adaptation) -> None:
    """Copy the files of an exported model, all but its page to read, and add an adaptation."""
    card = read_exported(source)
    names = [name for name in card.files if name not in (ADAPTATION_NAME, README_NAME)]
    for name in names:
        shutil.copyfile(source.parent / name, folder / name)
    names.append(write_adaptation(folder, adaptation))
    files = {name: file_digest(folder / name) for name in names}
    write_exported(folder, replace(card, files=files, adaptation=adaptation))
