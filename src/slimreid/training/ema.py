"""A moving average of the weights, for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from slimreid.errors import ConfigError, ModelError

UPDATES = "updates"


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
