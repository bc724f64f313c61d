"""Small results and models to draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from slimreid.config.files import load_config
from slimreid.evaluation import RetrievalResult
from slimreid.inference.model_card import ModelCard
from slimreid.inference.model_file import write_model
from slimreid.inference.trained_model import build_from_card
from support.retrieval import retrieve


def solid(colour: tuple[int, int, int], size: tuple[int, int] = (40, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


def retrieval_case(seed: int = 0) -> dict[str, np.ndarray]:
    """Six identities, three cameras; the last query has no right answer."""
    rng = np.random.default_rng(seed)
    ids, cameras = np.repeat(np.arange(6), 9), np.tile(np.arange(3), 18)
    features = rng.normal(size=(6, 8))[ids] + 1.2 * rng.normal(size=(54, 8))
    query = np.append(np.arange(0, 54, 4), 53)
    case = {
        "query_features": features[query],
        "gallery_features": features,
        "query_ids": ids[query].copy(),
        "gallery_ids": ids,
        "query_cameras": cameras[query],
        "gallery_cameras": cameras,
    }
    case["query_ids"][-1] = 77
    return case


def retrieval_result(seed: int = 0, **options: object) -> RetrievalResult:
    return retrieve(**retrieval_case(seed), roc=True, **options)


def untrained_model(folder: Path, manifest: Path, *overrides: str) -> Path:
    """A model file with random weights for the data of the `small_set` fixture; its folder."""
    small = ("data.workers=0", "transforms.height=32", "transforms.width=16", "model.backbone=nano")
    options = (*small, f"data.manifest={manifest.as_posix()}", *overrides)
    names = tuple(str(i) for i in range(4))
    card = ModelCard(load_config(overrides=options), ("rgb", "nir", "tir"), names, ("1", "2"), 0, "last")
    torch.manual_seed(0)
    write_model(folder / "model.safetensors", build_from_card(card).state_dict(), card)
    return folder
