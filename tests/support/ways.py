"""Every token reduction with every fusion: small models, and images for them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from slimreid.config import ModelConfig
from slimreid.config.model import Fusion, Reduction
from slimreid.models.reid_model import ReIDModel, build_model

NAMES = ("rgb", "nir", "tir")
SIZE = (32, 16)
WAYS = [
    {"reduction": reduction, "fusion": fusion}
    for reduction in get_args(Reduction)
    for fusion in get_args(Fusion)
    if (reduction, fusion) != ("after_backbone", "none")
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
"""Runs a test with every token reduction and every fusion."""


def make(names: tuple[str, ...] = NAMES, cameras: int = 3, seed: int = 0, **options: Any) -> ReIDModel:
    """A random nano model for five identities."""
    torch.manual_seed(seed)
    config = ModelConfig(**({"backbone": "nano", "camera_embedding": cameras > 0} | options))
    return build_model(config, SIZE, names, 5, cameras)


def images(B: int = 4, names: tuple[str, ...] = NAMES, seed: int = 1) -> dict[str, Tensor]:
    """Noise in the size of the model."""
    torch.manual_seed(seed)
    return {name: torch.randn(B, 3, *SIZE) for name in names}


def cameras(B: int = 4) -> Tensor:
    """Numbers of cameras that the model knows."""
    return torch.arange(B) % 3
