"""The temperature of an estimator over training."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from slimreid.slimming.estimators import Temperature, annealed
from slimreid.slimming.options import SlimmingOptions


class AnnealedTau(nn.Module):
    """τ as the options say: a number, or a tensor that `set_progress` moves from `tau` to `tau_final`.

    A tensor, because compiled code would otherwise be compiled again whenever it changes. It is not part
    of the saved state: it follows from the epoch.
    """

    def __init__(self, options: SlimmingOptions) -> None:
        super().__init__()
        self.first, self.last = options.tau, options.tau_final
        if self.last is not None:
            self.register_buffer("moving", torch.tensor(self.first), persistent=False)

    @property
    def value(self) -> Temperature:
        """τ now."""
        return self.first if self.last is None else cast(Tensor, self.moving)

    def set_progress(self, progress: float) -> None:
        """How much of training is done: 0 in the first epoch, 1 in the last."""
        if self.last is not None:
            cast(Tensor, self.moving).fill_(annealed(self.first, self.last, progress))
