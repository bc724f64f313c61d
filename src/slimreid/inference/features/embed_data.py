"""Embeddings of a whole dataset or folder of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slimreid.config.model import BOTH
from slimreid.data.importing.unlabelled_folder import open_folder
from slimreid.data.manifest import MANIFEST_NAME, Split
from slimreid.errors import ConfigError, DataError
from slimreid.files import IMAGE_SUFFIXES, require_utf8
from slimreid.inference.embedding_sets.files import Embeddings
from slimreid.inference.features.data import ModelData, camera_numbers, describe_data, open_data
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import check_finite, check_kind


def open_images(
    loaded: LoadedModel, path: Path, modality: str | None = None, camera: str | None = None
) -> tuple[ModelData, str]:
    """A manifest, a folder with one, or any folder of images, for a model; and how it was understood.

    `modality`: what images are that do not say so, `camera`: which took them (both for a bare folder). Raises
    `DataError`, `ConfigError` for either with a manifest.
    """
    require_utf8(path.resolve())  # the file of embeddings holds its paths
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give a manifest or a folder of images")
    if path.is_dir() and not (path / MANIFEST_NAME).is_file():
        found = open_folder(path, loaded.modalities, modality)
        manifest = found.manifest
        if camera is not None:
            manifest = manifest.with_samples(replace(each, camera=camera) for each in manifest.samples)
        data = ModelData(manifest, path, path.resolve().name, own=False, notes=found.notes)
        return data, found.how
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError(f"{path}: a single image; give its folder, or a manifest that lists it")
    if modality is not None:
        raise ConfigError("--modality is for a folder without manifest; a manifest says what its images are")
    if camera is not None:
        raise ConfigError("a camera is named for a bare folder only; a manifest says who took its images")
    return open_data(loaded, path), "manifest"


def embed_data(
    loaded: LoadedModel,
    data: ModelData,
    *,
    feature: str = BOTH,
    modalities: Sequence[str] | None = None,
    split: Split | None = None,
    extraction: Extraction | None = None,
) -> tuple[Embeddings, tuple[str, ...]]:
    """Embed the samples of a dataset that have any of `modalities` (default: all); also gives notes.

    Samples come in the order of the manifest.

    Args:
        loaded: Model to embed with.
        data: Samples to embed.
        feature: `original`, `slimmed`, `fused` or `both`.
        modalities: Modalities to use; None = all.
        split: Rows to embed; None = all.
        extraction: How the features are computed; None = as in training.

    Raises:
        ConfigError: For a feature that the model, or a modality that the data, does not have.
        DataError: For a broken file, when nothing is left, or for features with NaN or infinity.
    """
    extraction = extraction or Extraction()
    check_kind(feature, tuple(loaded.sizes))
    manifest = data.manifest
    subset = tuple(m for m in manifest.modalities if modalities is None or m in modalities)
    if absent := [m for m in modalities or () if m not in manifest.modalities]:
        there = ", ".join(manifest.modalities)
        raise ConfigError(f"modality '{absent[0]}'; the data has {there} of the model's")
    chosen = manifest.samples if split is None else manifest.select(split)
    if not chosen:
        raise DataError(f"{data.path}: no rows of split '{split}'")
    data = replace(data, manifest=manifest.with_samples(chosen))
    found = extract_features(loaded, data, [subset], extraction)[subset]
    samples = [chosen[row] for row in found.rows.tolist()]
    if not samples:
        raise DataError(f"{data.path}: no sample has a readable image of {', '.join(subset)}")
    notes = describe_data(loaded, data, camera_numbers(loaded, data, extraction.cameras))
    if left_out := len(chosen) - len(samples):
        what = f"no readable image of {', '.join(subset)}"
        notes.append(f"{left_out} of {len(chosen)} samples left out: {what}")
    features = found.get(feature)
    check_finite(features, [next(iter(s.images.values())).path for s in samples])
    embeddings = Embeddings(
        features=features,
        feature=feature,
        modalities=subset,
        fingerprint=loaded.feature_fingerprint,
        identities=tuple(s.identity for s in samples),
        cameras=tuple(s.camera for s in samples),
        scenes=tuple(s.scene for s in samples),
        splits=tuple(s.split for s in samples),
        paths=tuple({m: s.images[m].path for m in subset if m in s.images} for s in samples),
        root=manifest.root.resolve().as_posix(),
        origin=manifest.origin,
        similarity=loaded.similarity(feature),
    )
    return embeddings, tuple(notes)
