"""Embeddings on disk: one safetensors file with features, whom they show, and which model made them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slimreid import __version__
from slimreid.data.loose import open_folder
from slimreid.data.manifest import MANIFEST_NAME, Split
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.data import Cameras, ModelData, camera_numbers, describe_data, open_data
from slimreid.evaluation.features import check_kind, extract_features
from slimreid.files import IMAGE_SUFFIXES, atomic_write
from slimreid.loading import LoadedModel, fingerprint
from slimreid.models.reid_model import BOTH

FORMAT = 1
SUFFIX = ".safetensors"
_HEADER = "slimreid"
_FEATURES = "features"
_COLUMNS = ("identities", "cameras", "scenes", "splits", "paths")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """L2-normalised features of R samples, and what they are of."""

    features: Tensor
    """(R, D) float32."""
    feature: str
    """Kind: original, slimmed, fused or both."""
    modalities: tuple[str, ...]
    """What the model was shown, as far as each sample has it."""
    fingerprint: str
    """SHA-256 of the model's weights; only features of one model can be compared."""
    identities: tuple[str, ...]
    """'' where nobody knows."""
    cameras: tuple[str, ...]
    scenes: tuple[str, ...]
    splits: tuple[str, ...]
    paths: tuple[dict[str, str], ...]
    """Per sample {modality: path below `root`}."""
    root: str
    """Folder that paths start from."""
    origin: str = ""
    """What the pixels are, if the manifest says so."""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.dtype != torch.float32:
            raise DataError(f"features must be float32 (R, D), not {tuple(self.features.shape)}")
        for name in _COLUMNS:
            if len(getattr(self, name)) != len(self.features):
                raise DataError(f"{len(getattr(self, name))} {name} for {len(self.features)} features")

    def __len__(self) -> int:
        return len(self.features)


def open_images(loaded: LoadedModel, path: Path, modality: str | None = None) -> tuple[ModelData, str]:
    """A manifest, a folder with one, or any folder of images, for a model; and how it was understood.

    `modality`: what images are that do not say so (a bare folder). Raises `DataError`.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give a manifest or a folder of images")
    if path.is_dir() and not (path / MANIFEST_NAME).is_file():
        manifest, how = open_folder(path, loaded.modalities, modality)
        return ModelData(manifest, path, path.resolve().name, own=False), how
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError(f"{path}: a single image; give its folder, or a manifest that lists it")
    if modality is not None:
        raise ConfigError("--modality goes with a bare folder; a manifest says what its images are")
    return open_data(loaded, path), "manifest"


def embed_dataset(
    loaded: LoadedModel,
    data: ModelData,
    *,
    feature: str = BOTH,
    modalities: Sequence[str] | None = None,
    split: Split | None = None,
    cameras: Cameras = "auto",
    batch: int | None = None,
    workers: int | None = None,
    skip_broken: bool | None = None,
    show_progress: bool | None = None,
) -> tuple[Embeddings, tuple[str, ...]]:
    """Embed the samples of a dataset that have any of `modalities` (default: all); also gives notes.

    Samples come in the order of the manifest. `skip_broken` leaves out those whose files cannot be read
    (None = as in the run). Raises `ConfigError` for a kind of feature or a modality that
    is not there, `DataError` for a broken file or when nothing is left.
    """
    check_kind(feature, tuple(loaded.model.sizes))
    manifest = data.manifest
    subset = tuple(m for m in manifest.modalities if modalities is None or m in modalities)
    absent = [m for m in modalities or () if m not in manifest.modalities]
    if absent:
        raise ConfigError(
            f"modality '{absent[0]}'; the data has {', '.join(manifest.modalities)} of the model's"
        )
    chosen = manifest.samples if split is None else manifest.select(split)
    if not chosen:
        raise DataError(f"{data.path}: no rows of split '{split}'")
    data = ModelData(manifest.with_samples(chosen), data.path, data.name, data.own, data.unknown)
    found = extract_features(
        loaded,
        data,
        [subset],
        cameras=cameras,
        batch=batch,
        workers=workers,
        skip_broken=skip_broken,
        show_progress=show_progress,
    )[subset]
    samples = [chosen[row] for row in found.rows.tolist()]
    if not samples:
        raise DataError(f"{data.path}: no sample has a readable image of {', '.join(subset)}")
    notes = describe_data(loaded, data, camera_numbers(loaded, data, cameras))
    if left_out := len(chosen) - len(samples):
        notes.append(
            f"{left_out} of {len(chosen)} samples left out: no readable image of {', '.join(subset)}"
        )
    embeddings = Embeddings(
        features=found.get(feature),
        feature=feature,
        modalities=subset,
        fingerprint=loaded.fingerprint,
        identities=tuple(s.identity for s in samples),
        cameras=tuple(s.camera for s in samples),
        scenes=tuple(s.scene for s in samples),
        splits=tuple(s.split for s in samples),
        paths=tuple({m: s.images[m].path for m in subset if m in s.images} for s in samples),
        root=manifest.root.resolve().as_posix(),
        origin=manifest.origin,
    )
    return embeddings, tuple(notes)


def check_suffix(path: Path) -> None:
    """Raise `ConfigError` for a file whose name does not say what it would hold."""
    if path.suffix.lower() != SUFFIX:
        raise ConfigError(f"{path}: embeddings are written as {SUFFIX}; name the file {path.stem}{SUFFIX}")


def write_embeddings(path: Path, embeddings: Embeddings) -> None:
    """Write embeddings atomically; the same ones give the same bytes."""
    tensors = {_FEATURES: embeddings.features.contiguous()}
    header: dict[str, Any] = {
        "format": FORMAT,
        "slimreid": __version__,
        **{name: getattr(embeddings, name) for name in Embeddings.__dataclass_fields__ if name != _FEATURES},
        "checksum": fingerprint(tensors),
    }
    content = save(tensors, metadata={_HEADER: json.dumps(header, ensure_ascii=False)})
    with atomic_write(path) as file:
        file.write(content)


def read_embeddings(path: Path | str) -> Embeddings:
    """Read embeddings back; raises `DataError` naming the file if it is not one or is damaged."""
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_HEADER)
            names = set(file.keys())
            features = file.get_tensor(_FEATURES) if _FEATURES in names else None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; make it with 'slimreid embed'") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error})") from None
    if text is None or features is None:
        raise DataError(f"{path}: not a file of embeddings; make one with 'slimreid embed'")
    try:
        header = json.loads(text)
        if header["format"] > FORMAT:
            raise DataError(f"written by SlimReID {header['slimreid']}, which is newer; update SlimReID")
        if fingerprint({_FEATURES: features}) != header["checksum"]:
            raise DataError("damaged: the features do not match their checksum")
        values: dict[str, Any] = {name: tuple(header[name]) for name in (*_COLUMNS, "modalities")}
        values |= {name: header[name] for name in ("feature", "fingerprint", "root", "origin")}
        return Embeddings(features=features, **values)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: its header is damaged ({error!r}); make it again") from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
