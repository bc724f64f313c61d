"""When an evaluation still holds: one key over all that decides its figures."""

from __future__ import annotations

import hashlib
import json

from slimreid.inference.features.cache import features_key
from slimreid.inference.features.data import Cameras, ModelData, camera_numbers, eval_config
from slimreid.inference.loaded_model import LoadedModel


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
