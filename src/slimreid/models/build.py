"""From options to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slimreid.backbones.pretrained import load_pretrained
from slimreid.backbones.vit import ViT
from slimreid.config import ModelConfig
from slimreid.config.backbones import vit_config
from slimreid.devices import guard_amx
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel


def build_model(
    config: ModelConfig,
    image_size: tuple[int, int],
    modalities: Sequence[str],
    num_classes: int,
    num_cameras: int = 0,
    *,
    load_weights: bool = True,
) -> ReIDModel:
    """Build the model for images of `image_size` (height, width), with pretrained weights if configured.

    `load_weights=False` leaves them out, for models that get all their weights from a checkpoint. Raises
    `ConfigError` for options or counts that make no model, `ModelError` for weights that do not fit.
    """
    guard_amx()  # before the model's first product, whatever its precision: later is too late
    if num_cameras < 0:
        raise ConfigError(f"the number of cameras must not be negative, not {num_cameras}")
    vit = replace(
        vit_config(config.backbone),
        stride=config.stride,
        drop_path=config.drop_path,
        grad_checkpointing=config.grad_checkpointing,
        cameras=num_cameras if config.camera_embedding else 0,
        camera_scale=config.camera_scale,
    )
    backbone = ViT(vit, image_size)
    if config.pretrained and load_weights:
        load_pretrained(backbone, config.pretrained)
    return ReIDModel(backbone, modalities, num_classes, config)
