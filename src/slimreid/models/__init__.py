"""Backbones and re-identification models."""

from slimreid.models.pretrained import load_pretrained
from slimreid.models.reid_model import ReIDModel, ReIDOutput
from slimreid.models.sizes import SIZES, ViTConfig, vit_config
from slimreid.models.tokens import TokenState
from slimreid.models.vit import ViT, ViTOutput

__all__ = [
    "SIZES",
    "ReIDModel",
    "ReIDOutput",
    "TokenState",
    "ViT",
    "ViTConfig",
    "ViTOutput",
    "load_pretrained",
    "vit_config",
]
