"""Backbones and re-identification models."""

from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.tokens import TokenState
from slimreid.backbones.vit import ViT, ViTOutput
from slimreid.config.backbones import SIZES, ViTConfig, vit_config
from slimreid.models.heads import ReIDOutput
from slimreid.models.reid_model import ReIDModel

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
