"""One batch to losses, and losses to an update of the weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from slimreid.config import OptimConfig
from slimreid.data.batches import ModalBatch
from slimreid.devices import Precision, autocast
from slimreid.models.heads import ReIDOutput
from slimreid.models.reid_model import ReIDModel
from slimreid.training.distillation import Distillation, Gather
from slimreid.training.losses import TOTAL, ReIDLoss, accuracy
from slimreid.training.optimizer import EMA

ACCURACY = "accuracy"


class BatchLosses(nn.Module):
    """Model and losses as one module with one differentiable output, which is what DDP follows.

    With `gather`, heads and losses see the batches of all processes.
    """

    def __init__(
        self,
        model: ReIDModel,
        loss: ReIDLoss,
        precision: Precision,
        gather: Gather | None,
        distillation: Distillation | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.precision: Precision = precision
        self.gather = gather
        self.distillation = distillation
        self.all_tokens = False
        """Whether tokens are not reduced in the backbone yet; nothing is distilled then."""
        model.gather = gather

    def forward(self, batch: ModalBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A batch of B samples -> the loss to minimise, and all named scalars without gradient."""
        device = batch.identity.device
        with autocast(self.precision, device):
            output: ReIDOutput = self.model(batch, all_tokens=self.all_tokens)
        identity = batch.identity
        if self.gather is not None:
            identity = self.gather(identity)
        distill = None
        if self.distillation is not None and not self.all_tokens:
            distill = self.distillation(batch, output, self.gather)
        losses = self.loss(output, identity, distill)
        named = {name: value.detach().float() for name, value in losses.items()}
        named[ACCURACY] = torch.tensor(accuracy(output, identity), device=device)
        return losses[TOTAL], named


class Updater:
    """Adds up gradients of a few batches and changes the weights by their mean."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: OptimConfig,
        scaler: torch.amp.GradScaler,
        ema: EMA | None,
    ) -> None:
        self.module, self.optimizer, self.config = module, optimizer, config
        self.scaler, self.ema = scaler, ema
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.waiting = 0
        self.before_step: Callable[[], None] | None = None
        """Called when the gradients of an update are complete, before they are clipped and used."""
        optimizer.zero_grad(set_to_none=True)

    def forward(self, batch: ModalBatch, last: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses of a batch; gradients are exchanged between processes only for the last before an update."""
        with self._exchange(last):
            found: tuple[Tensor, dict[str, Tensor]] = self.module(batch)
        return found

    def backward(self, total: Tensor, last: bool) -> None:
        """Add the gradients of one batch."""
        with self._exchange(last):
            self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
        self.waiting += 1

    def _exchange(self, last: bool) -> AbstractContextManager[None]:
        waits = isinstance(self.module, DistributedDataParallel) and not last
        return self.module.no_sync() if waits else nullcontext()  # type: ignore[operator]

    def update(self) -> None:
        """Change the weights by the mean gradient of the batches since the last update."""
        self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if self.waiting > 1:
            torch._foreach_mul_(gradients, 1 / self.waiting)
        if self.before_step is not None:
            self.before_step()
        if self.config.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.waiting = 0
        if self.ema is not None:
            self.ema.update()
