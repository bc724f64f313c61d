"""Features on disk, found again while nothing they depend on has changed.

One safetensors file per subset of modalities; its header holds the key of what it was made from and a
checksum of what is in it. A file that does not fit is made anew, one that is damaged with a warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from slimreid import __version__
from slimreid.arrays import Floats
from slimreid.config import Config
from slimreid.data.manifest import Manifest
from slimreid.files import atomic_write
from slimreid.inference.features.data import Cameras, ModelData, camera_numbers, eval_config
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import checksum
from slimreid.modalities import subset_name

logger = logging.getLogger(__name__)

_HEADER = "slimreid"
_DAMAGE = (ValueError, TypeError, AttributeError, RecursionError)
_ROWS, _PRESENT = "rows", "present"


@dataclass(frozen=True, eq=False)
class Stored:
    """Features of different samples in one subset of modalities, as they are kept."""

    rows: NDArray[np.int64]
    """(U,) int64: which samples."""
    branches: dict[str, Floats]
    """Per branch of the model, (U, D) float32."""
    present: NDArray[np.bool_]
    """(U, M) bool: which of the model's modalities each sample was seen in."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Sample -> why its files could not be read."""


def features_key(loaded: LoadedModel, manifest: Manifest, config: Config, cameras: Mapping[str, int]) -> str:
    """SHA-256 over all that decides features: weights, options, rows, cameras, and the files' state."""
    states: dict[str, tuple[int, int]] = {}
    rows = []
    for sample in manifest.samples:
        images = []
        for name, image in sample.images.items():
            if image.path not in states:
                states[image.path] = _state(manifest.file(image))
            images.append([name, image.path, image.box, image.window, states[image.path]])
        rows.append([cameras[sample.camera], images])
    data, transforms = config.data, config.transforms
    content = [
        __version__,
        loaded.fingerprint,
        *([] if loaded.adaptation is None else [loaded.adaptation.digest]),
        asdict(config.model),
        loaded.modalities,
        loaded.precision,
        [data.windows, data.scaled_decode, data.on_error],
        [transforms.size, transforms.mean, transforms.std, transforms.test_resize],
        str(manifest.root.resolve()),
        rows,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _state(path: Path) -> tuple[int, int]:
    """Size and time of a file; zeros where it cannot be seen (reading it will say what is wrong)."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_size, state.st_mtime_ns


class FeatureCache:
    """The features of one model on one dataset, in a folder."""

    def __init__(self, folder: Path, key: str, modalities: Sequence[str]) -> None:
        self.folder, self.key, self.modalities = folder, key, modalities

    def path(self, subset: tuple[str, ...]) -> Path:
        """The file of a subset of modalities."""
        return self.folder / f"features-{subset_name(subset, self.modalities)}.safetensors"

    def read(self, subset: tuple[str, ...]) -> Stored | None:
        """What is kept of a subset, or None where nothing is, or something else, or something damaged."""
        path = self.path(subset)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="np") as file:
                header = json.loads((file.metadata() or {})[_HEADER])
                if header["key"] != self.key:
                    return None
                if header["subset"] != list(subset):
                    raise ValueError(f"it holds {'+'.join(header['subset'])}")
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if checksum(header, arrays) != header["checksum"]:
                raise ValueError("its checksum is wrong")
            branches = {name: arrays[name] for name in header["branches"]}
            dropped = {int(row): str(message) for row, message in header["dropped"].items()}
            return Stored(arrays[_ROWS], branches, arrays[_PRESENT].astype(np.bool_), dropped)
        except (SafetensorError, OSError, LookupError, *_DAMAGE) as error:
            logger.warning("%s: cannot be used (%s); the features are computed again", path, error)
            return None

    def write(self, subset: tuple[str, ...], stored: Stored) -> None:
        """Keep the features of a subset, in place of what was kept of it before."""
        present = stored.present.astype(np.uint8)
        arrays: dict[str, NDArray[Any]] = {_ROWS: stored.rows, _PRESENT: present, **stored.branches}
        header: dict[str, Any] = {
            "key": self.key,
            "subset": list(subset),
            "branches": list(stored.branches),
            "dropped": {str(row): why for row, why in stored.dropped.items()},
        }
        header["checksum"] = checksum(header, arrays)
        content = save(arrays, metadata={_HEADER: json.dumps(header, ensure_ascii=False)})
        with atomic_write(self.path(subset)) as file:
            file.write(content)


def evaluation_key(
    loaded: LoadedModel, data: ModelData, protocol: str, cameras: Cameras, skip_broken: bool | None
) -> str:
    """SHA-256 over what decides the features of these rows, and over who is seen where.

    Args:
        loaded: The model.
        data: The rows that are searched, and no others.
        protocol: Which gallery images a query ignores.
        cameras: Whether cameras with the names of training cameras are the same ones.
        skip_broken: Whether samples whose files cannot be read are left out; None = as in the run.
    """
    config = eval_config(loaded, data, skip_broken=skip_broken)
    numbers = camera_numbers(loaded, data, cameras).camera
    features = features_key(loaded, data.manifest, config, numbers)
    labels = [[s.split, s.identity, s.camera, s.scene] for s in data.manifest.samples]
    return hashlib.sha256(json.dumps([features, protocol, labels]).encode()).hexdigest()
