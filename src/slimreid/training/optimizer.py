"""Parameter groups and the optimizer, the learning rate over time, the moving average of the weights.

Every trainable parameter is in one of six groups, `<part>.<kind>`:

| part       | parameters                                         | learning rate                         |
|------------|----------------------------------------------------|---------------------------------------|
| `backbone` | the transformer, without its camera embedding      | `backbone_lr`, or `lr` if that is none |
| `new`      | everything else, the camera embedding included     | `lr`; biases × `bias_lr_factor`       |

| kind     | parameters                                  |
|----------|---------------------------------------------|
| `weight` | matrices, kernels, tokens, positions        |
| `gain`   | one value per channel: norms, scales        |
| `bias`   | everything whose name ends in bias          |

The camera embedding lives in the backbone but no pretrained weights have it: it starts from noise, so it
learns at the full rate like other new parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from slimreid.config import OptimConfig
from slimreid.errors import ConfigError, ModelError
from slimreid.models.reid_model import ReIDModel

BACKBONE, NEW = "backbone", "new"
WEIGHT, GAIN, BIAS = "weight", "gain", "bias"
CAMERAS = "backbone.camera_embedding"
_WARMUP_START, _MIN_LR_RATIO = 0.1, 0.001
"""Shares of the base rate: that of every group at the start of the warm-up, and at the end."""
UPDATES = "updates"


def freeze_backbone(model: ReIDModel) -> None:
    """Stop learning in the whole backbone, camera embedding included, so that it needs no backward pass."""
    model.backbone.requires_grad_(False)


def parameter_groups(model: ReIDModel, config: OptimConfig) -> list[dict[str, Any]]:
    """Groups with `name`, `params`, `lr` and `weight_decay`; frozen parameters and empty groups are left out.

    Freeze first: that is not looked at here.
    """
    members: dict[str, list[Tensor]] = {f"{p}.{k}": [] for p in (BACKBONE, NEW) for k in (WEIGHT, GAIN, BIAS)}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            members[f"{_part(name)}.{_kind(name, parameter)}"].append(parameter)
    return [
        {"name": name, "params": params, "lr": _lr(name, config), "weight_decay": config.weight_decay}
        for name, params in members.items()
        if params
    ]


def _part(name: str) -> str:
    return BACKBONE if name.startswith(f"{BACKBONE}.") and name != CAMERAS else NEW


def _kind(name: str, parameter: Tensor) -> str:
    if name.endswith(BIAS):  # also in_proj_bias, and the stacked expert_bias, which has three axes
        return BIAS
    return GAIN if parameter.ndim <= 1 or parameter.numel() == 1 else WEIGHT


def _lr(group: str, config: OptimConfig) -> float:
    part, kind = group.split(".")
    if part == BACKBONE:
        return config.lr if config.backbone_lr is None else config.backbone_lr
    return config.lr * (config.bias_lr_factor if kind == BIAS else 1.0)


def make_optimizer(model: ReIDModel, config: OptimConfig) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD over the groups of `model`; freezes what `config` says first."""
    if config.freeze_backbone:
        freeze_backbone(model)
    groups = parameter_groups(model, config)
    # One kernel per parameter instead of a dozen; elsewhere torch chooses well by itself.
    fused = True if all(parameter.device.type == "cpu" for parameter in model.parameters()) else None
    if config.name == "sgd":
        return torch.optim.SGD(groups, momentum=config.momentum, fused=fused)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, fused=fused)


def lr_at(group_lr: float, epoch: float, epochs: int, config: OptimConfig) -> float:
    """Learning rate of a group with full rate `group_lr` after `epoch` of `epochs`, fractions allowed.

    A pure function of the epoch, so that a resumed run goes on exactly. With base = `optim.lr`, g the full
    rate of the group, e the epochs done, E all epochs, W = `warmup_epochs`:

        e < W         s + (g − s) · e / W,  s = 0.1 · base                 the same start for every group
        otherwise     f + (g − f) · (1 + cos(π · (e − W) / (E − W))) / 2,  f = 0.001 · base

    Start and end are absolute: a backbone with a small g begins above it and ends at the same value as
    everything else. The cosine begins where the warm-up ends, so there is no jump between them. Beyond the
    last epoch it stays at its final value.
    """
    epoch = min(epoch, epochs)
    if epoch < config.warmup_epochs:
        start = _WARMUP_START * config.lr
        return start + (group_lr - start) * epoch / config.warmup_epochs
    end = _MIN_LR_RATIO * config.lr
    done = (epoch - config.warmup_epochs) / max(1, epochs - config.warmup_epochs)
    return end + (group_lr - end) * (1 + math.cos(math.pi * done)) / 2


class LRSchedule:
    """Sets the learning rate of every group of an optimizer for a given epoch; has no state to save.

    Make it before the optimizer's state is loaded: the full rates are those the groups have now.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, config: OptimConfig, epochs: int) -> None:
        self.optimizer, self.config, self.epochs = optimizer, config, epochs
        self.full = [float(group["lr"]) for group in optimizer.param_groups]
        self.set_epoch(0)

    def set_epoch(self, epoch: float) -> None:
        """Give every group its learning rate after `epoch` epochs."""
        for group, full in zip(self.optimizer.param_groups, self.full, strict=True):
            group["lr"] = lr_at(full, epoch, self.epochs, self.config)

    def rates(self) -> dict[str, float]:
        """Learning rate of each group by its name, as it is now."""
        return {str(group["name"]): float(group["lr"]) for group in self.optimizer.param_groups}


class EMA:
    """Moving average of everything in the state dict of `model`: average ← d · average + (1 − d) · now.

    d = min(decay, (1 + n) / (10 + n)) at the n-th update, so that a short run is not held back by the
    random weights it began with. Counters (integers) are taken over as they are. Give the bare model,
    not a wrapper of it. Raises `ConfigError` when `decay` is not in (0, 1).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"optim.ema must be in (0, 1) to average, not {decay}")
        self.model, self.decay, self.updates = model, decay, 0
        self.average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights; call it after every optimizer step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                self.average[name].lerp_(value, 1 - decay)
            else:
                self.average[name].copy_(value)
        self.updates += 1

    @contextmanager
    def swapped(self) -> Iterator[nn.Module]:
        """Within the block the model has the averaged weights; afterwards its own, bit for bit."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        try:
            yield self.model
        finally:
            self.model.load_state_dict(own)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by the model's names and the number of `updates`, as plain tensors."""
        return {**self.average, UPDATES: torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved `state_dict`; raises `ModelError` naming the keys that do not fit."""
        wrong = sorted({*self.average, UPDATES} ^ set(state))
        wrong += [n for n, value in self.average.items() if n in state and state[n].shape != value.shape]
        if wrong:
            raise ModelError(
                f"the saved moving average is of another model; it differs in {', '.join(wrong)}"
            )
        for name, value in self.average.items():
            value.copy_(state[name])
        self.updates = int(state[UPDATES])
