"""Embeddings on disk: one safetensors file with features, whom they show, and which model made them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from slimreid import __version__
from slimreid.arrays import Bools, Floats
from slimreid.errors import ConfigError, DataError
from slimreid.files import refuse_existing, write_new
from slimreid.inference.model_card import HEADER, checksum
from slimreid.inference.similarity import Similarity, presence

FORMAT = 3
SUFFIX = ".safetensors"
_FEATURES, _IMPOSTORS = "features", "impostors"
_COLUMNS = ("identities", "cameras", "scenes", "splits", "paths")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """L2-normalised features of R samples, and what they are of."""

    features: Floats
    """(R, D) float32."""
    feature: str
    """Kind: original, slimmed, fused or both."""
    modalities: tuple[str, ...]
    """What the model was shown, as far as each sample has it."""
    fingerprint: str
    """`feature_fingerprint` of the model: only features that agree in it can be compared."""
    identities: tuple[str, ...]
    """'' where nobody knows."""
    cameras: tuple[str, ...]
    scenes: tuple[str, ...]
    splits: tuple[str, ...]
    paths: tuple[dict[str, str], ...]
    """Per sample {modality: path below `root`}."""
    root: str
    """Folder that paths start from."""
    similarity: Similarity
    """How these features are compared."""
    origin: str = ""
    """What the pixels are, if the manifest says so."""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.dtype != np.float32:
            raise DataError(f"features must be float32 (R, D), not {tuple(self.features.shape)}")
        for name in _COLUMNS:
            if len(getattr(self, name)) != len(self.features):
                raise DataError(f"{len(getattr(self, name))} {name} for {len(self.features)} features")

    def __len__(self) -> int:
        return len(self.features)

    @property
    def present(self) -> Bools:
        """(R, M): which of the model's modalities each sample was seen in."""
        return presence(self.similarity.modalities, self.paths)

    def compare(self, gallery: Embeddings) -> Floats:
        """Similarities (R, G) to those of a gallery; NaN where two samples share no modality.

        Raises `DataError` unless both come from one model and are of one kind.
        """
        for name in ("fingerprint", "feature"):
            if getattr(self, name) != getattr(gallery, name):
                raise DataError(
                    f"these embeddings have different {name}s ({getattr(self, name)[:12]}, "
                    f"{getattr(gallery, name)[:12]}); make both with one model and one --feature"
                )
        return self.similarity(self.features, gallery.features, self.present, gallery.present)


def check_suffix(path: Path) -> None:
    """Raise `ConfigError` for a file whose name does not say what it would hold."""
    if path.suffix.lower() != SUFFIX:
        raise ConfigError(f"{path}: embeddings are written as {SUFFIX}; name the file {path.stem}{SUFFIX}")


def refuse_other_file(path: Path, fingerprint: str, feature: str) -> None:
    """Before the work: raise `DataError` for a file that is not what this model has written of `feature`."""
    if not path.is_file():
        return
    try:
        found = read_embeddings(path)
    except DataError:
        found = None
    if found is None or (found.fingerprint, found.feature) != (fingerprint, feature):
        refuse_existing(path)


def write_embeddings(path: Path, embeddings: Embeddings, overwrite: bool = True) -> bool:
    """Write embeddings atomically; False if the file holds the same already.

    Raises `DataError` where other content would be replaced and `overwrite` is False.
    """
    similarity = embeddings.similarity
    arrays = {_FEATURES: np.ascontiguousarray(embeddings.features)}
    if similarity.impostors is not None:
        arrays[_IMPOSTORS] = np.ascontiguousarray(similarity.impostors)
    names = [n for n in Embeddings.__dataclass_fields__ if n not in (_FEATURES, "similarity")]
    header: dict[str, Any] = {
        "format": FORMAT,
        "slimreid": __version__,
        **{name: getattr(embeddings, name) for name in names},
        "similarity": {"modalities": similarity.modalities, "blocks": similarity.blocks},
    }
    header = json.loads(json.dumps(header))  # as it will be read back: tuples become lists
    header["checksum"] = checksum(header, arrays)
    content = save(arrays, metadata={HEADER: json.dumps(header, ensure_ascii=False)})
    return write_new(path, content, overwrite)


def read_embeddings(path: Path | str) -> Embeddings:
    """Read embeddings back; raises `DataError` naming the file if it is not one or is damaged."""
    path = Path(path)
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(HEADER)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; make it with 'slimreid embed'") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error})") from None
    if text is None or _FEATURES not in arrays:
        raise DataError(f"{path}: not a file of embeddings; make one with 'slimreid embed'")
    try:
        header = json.loads(text)
        if header["format"] > FORMAT:
            raise DataError(f"written by SlimReID {header['slimreid']}, which is newer; update SlimReID")
        if header["format"] != FORMAT:
            raise DataError("embeddings of an older format; make them again with 'slimreid embed'")
        if checksum(header, arrays) != header["checksum"]:
            raise DataError("damaged: it does not match its checksum; make it again")
        values: dict[str, Any] = {name: tuple(header[name]) for name in (*_COLUMNS, "modalities")}
        values |= {name: header[name] for name in ("feature", "fingerprint", "root", "origin")}
        similarity = Similarity.from_plain({**header["similarity"], _IMPOSTORS: arrays.get(_IMPOSTORS)})
        return Embeddings(features=arrays[_FEATURES], similarity=similarity, **values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: its header is damaged ({error!r}); make it again") from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
