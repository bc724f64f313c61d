"""Parameter groups and the optimizer.

Every trainable parameter is in one of six groups, `<part>.<kind>`:

| part       | parameters                                         | learning rate                         |
|------------|----------------------------------------------------|---------------------------------------|
| `backbone` | the transformer, without its camera embedding      | `backbone_lr`, or `lr` if that is none |
| `new`      | everything else, the camera embedding included     | `lr`; biases × `bias_lr_factor`       |

| kind     | parameters                                  | weight decay                       |
|----------|---------------------------------------------|------------------------------------|
| `weight` | matrices, kernels, tokens, positions        | `weight_decay`                     |
| `gain`   | one value per channel: norms, scales        | the same, or 0 without `decay_norms` |
| `bias`   | everything whose name ends in bias          | the same, or 0 without `decay_norms` |

The camera embedding lives in the backbone but no pretrained weights have it: it starts from noise, so it
learns at the full rate like other new parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from slimreid.config import OptimConfig
from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel

BACKBONE, NEW = "backbone", "new"
WEIGHT, GAIN, BIAS = "weight", "gain", "bias"
_CAMERAS = "backbone.camera_embedding"


def freeze_backbone(model: ReIDModel) -> None:
    """Stop learning in the whole backbone, camera embedding included, so that it needs no backward pass."""
    model.backbone.requires_grad_(False)


def freeze_blocks(model: ReIDModel, count: int) -> None:
    """Stop learning in the first `count` blocks of the backbone and in patch and position embeddings.

    They need no backward pass then, unless a camera embedding learns in front of them. Raises `ConfigError`
    when no block would be left to learn.
    """
    backbone = model.backbone
    if count >= len(backbone.blocks):
        raise ConfigError(
            f"optim.freeze_blocks {count}: the backbone has {len(backbone.blocks)} blocks, and one must "
            "learn; optim.freeze_backbone freezes all"
        )
    for name, parameter in backbone.named_parameters():
        part, _, rest = name.partition(".")
        behind = part in ("final_norm", "projection") or (
            part == "blocks" and int(rest.split(".")[0]) >= count
        )
        if not behind and name != "camera_embedding":
            parameter.requires_grad_(False)


def parameter_groups(model: ReIDModel, config: OptimConfig) -> list[dict[str, Any]]:
    """Groups with `name`, `params`, `lr` and `weight_decay`; frozen parameters and empty groups are left out.

    Freeze first: that is not looked at here.
    """
    members: dict[str, list[Tensor]] = {f"{p}.{k}": [] for p in (BACKBONE, NEW) for k in (WEIGHT, GAIN, BIAS)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            members[f"{_part(name)}.{_kind(name, parameter)}"].append(parameter)
    return [
        {"name": name, "params": params, "lr": _lr(name, config), "weight_decay": _decay(name, config)}
        for name, params in members.items()
        if params
    ]


def _part(name: str) -> str:
    return BACKBONE if name.startswith(f"{BACKBONE}.") and name != _CAMERAS else NEW


def _kind(name: str, parameter: Tensor) -> str:
    if name.endswith(BIAS):  # also in_proj_bias, and the stacked expert_bias, which has three axes
        return BIAS
    return GAIN if parameter.ndim <= 1 or parameter.numel() == 1 else WEIGHT


def _lr(group: str, config: OptimConfig) -> float:
    part, kind = group.split(".")
    if part == BACKBONE:
        return config.lr if config.backbone_lr is None else config.backbone_lr
    return config.lr * (config.bias_lr_factor if kind == BIAS else 1.0)


def _decay(group: str, config: OptimConfig) -> float:
    return config.weight_decay if config.decay_norms or group.endswith(WEIGHT) else 0.0


def make_optimizer(model: ReIDModel, config: OptimConfig) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD over the groups of `model`; freezes what `config` says first."""
    if config.freeze_backbone:
        freeze_backbone(model)
    elif config.freeze_blocks:
        freeze_blocks(model, config.freeze_blocks)
    groups = parameter_groups(model, config)
    # One kernel per parameter instead of a dozen; elsewhere torch chooses well by itself.
    fused = True if _on_cpu(model) else None
    if config.name == "sgd":
        return torch.optim.SGD(groups, momentum=config.momentum, fused=fused)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, fused=fused)


def _on_cpu(model: nn.Module) -> bool:
    return all(parameter.device.type == "cpu" for parameter in model.parameters())
