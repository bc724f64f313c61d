"""The learning rate as a pure function of the epoch, so that a resumed run goes on exactly.

With base = `optim.lr`, g the learning rate of a parameter group, e the epochs done so far (fractions
allowed), E all epochs, W = `warmup_epochs`:

    e < W         s + (g − s) · e / W,  s = warmup_start · base       the same start for every group
    cosine        f + (g − f) · (1 + cos(π · (e − W) / (E − W))) / 2,  f = final · base
    multistep     g · gamma ^ (number of milestones ≤ e)

Start and end are absolute: a backbone with a small g begins above it and ends at the same value as
everything else. The cosine begins where the warm-up ends, so there is no jump between them.
"""

from __future__ import annotations

import math

from torch.optim import Optimizer

from slimreid.config import OptimConfig


def lr_at(group_lr: float, epoch: float, epochs: int, config: OptimConfig) -> float:
    """Learning rate of a group with full rate `group_lr` after `epoch` of `epochs`; see the formula above.

    Beyond the last epoch it stays at its final value.
    """
    epoch = min(epoch, epochs)
    if epoch < config.warmup_epochs:
        start = config.warmup_start * config.lr
        return start + (group_lr - start) * epoch / config.warmup_epochs
    if config.schedule == "multistep":
        return float(group_lr * config.gamma ** sum(epoch >= m for m in config.milestones))
    end = config.min_lr_ratio * config.lr
    done = (epoch - config.warmup_epochs) / max(1, epochs - config.warmup_epochs)
    return end + (group_lr - end) * (1 + math.cos(math.pi * done)) / 2


class LRSchedule:
    """Sets the learning rate of every group of an optimizer for a given epoch; has no state to save.

    Make it before the optimizer's state is loaded: the full rates are those the groups have now.
    """

    def __init__(self, optimizer: Optimizer, config: OptimConfig, epochs: int) -> None:
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
