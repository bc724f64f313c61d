"""What learns: model, losses and optimizer, and how they go through the batches of an epoch."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from slimreid.config import Config
from slimreid.data.augment.whole_batches import augment_batch
from slimreid.data.batches import ModalBatch
from slimreid.data.loader import BatchLoader
from slimreid.data.sampler import IdentitySampler
from slimreid.errors import TrainingError
from slimreid.inference.trained_model import load_state
from slimreid.models.reid_model import build_model
from slimreid.training.callbacks.base import StepReport
from slimreid.training.checkpoint.state import Checkpoint, flatten_optimizer, restore_optimizer
from slimreid.training.distillation import make_distillation
from slimreid.training.distributed.failures import not_finite, what_is_left
from slimreid.training.distributed.processes import (
    Processes,
    StoppedByMainError,
    gather_objects,
    gather_rows,
    while_all_have_more,
    wrap,
)
from slimreid.training.environment import seed_step
from slimreid.training.losses import ReIDLoss
from slimreid.training.optimizer import EMA, UPDATES, LRSchedule, make_optimizer
from slimreid.training.step import ACCURACY, BatchLosses, Updater
from slimreid.training.warm_start import init_from

logger = logging.getLogger(__name__)

_OPTIMIZER, _WEIGHTS = "optimizer.", "weights."


class Learner:
    """Model, losses and optimizer of a run, the same in all processes; all follows from `config.seed`.

    `restored` promises that a checkpoint is going to be restored, so that weights to start from are not
    read. Raises `ConfigError` for models to start from or to follow that cannot be.
    """

    def __init__(
        self,
        config: Config,
        loader: BatchLoader,
        processes: Processes,
        compile_backend: str = "inductor",
        *,
        restored: bool = False,
    ) -> None:
        self.config, self.loader, self.processes = config, loader, processes
        device, label_encoder = processes.device, loader.dataset.label_encoder
        torch.manual_seed(config.seed)
        self.model = build_model(
            config.model,
            config.transforms.size,
            loader.dataset.modalities,
            label_encoder.num_classes,
            label_encoder.num_cameras,
            load_weights=not restored and not config.train.init_from,
        ).to(device)
        if config.train.init_from and not restored:
            init_from(self.model, config.train.init_from, label_encoder, processes)
        self.optimizer = make_optimizer(self.model, config.optim)
        self.schedule = LRSchedule(self.optimizer, config.optim, config.train.epochs)
        self.ema = EMA(self.model, config.optim.ema) if config.optim.ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        distillation = make_distillation(
            config, self.model, label_encoder, processes, self.ema.average if self.ema else None
        )
        if config.train.compile:
            for model in (self.model, *([distillation.teacher] if distillation else [])):
                model.backbone.compile(backend=compile_backend)
        # Dropped samples make batches of processes differ in size.
        gather = partial(gather_rows, equal=config.data.on_error == "raise") if processes.count > 1 else None
        loss = ReIDLoss(config.loss, self.model.branch_weights)
        self.batch_losses = BatchLosses(self.model, loss, config.train.precision, gather, distillation)
        module = wrap(self.batch_losses, processes)
        self.updater = Updater(module, self.optimizer, config.optim, self.scaler, self.ema)

    @property
    def updates_per_epoch(self) -> int:
        """Updates of the weights in an epoch."""
        return math.ceil(len(self.loader) / self.config.optim.accumulate)

    def updates(self, epoch: int, step: int) -> Iterator[StepReport]:
        """Go through the batches of an epoch (from 0), updating the weights; one report per update.

        `step` is the number of updates before. Raises `TrainingError` when a loss is not finite, or when
        no batch of the epoch could be used; warns when some could not.
        """
        batches, accumulate = len(self.loader), self.config.optim.accumulate
        assert isinstance(self.loader.sampler, IdentitySampler)
        self.loader.sampler.set_epoch(epoch)
        self.model.set_epoch(epoch, self.config.train.epochs)
        self.batch_losses.all_tokens = epoch < self.config.train.full_epochs
        self.model.train()
        started, images, done, used = time.monotonic(), 0, 0, 0
        losses: dict[str, list[float]] = defaultdict(list)
        for number, (batch, following) in enumerate(pairwise(chain(self._batches(), [None]))):
            assert batch is not None
            used = number + 1
            last = following is None or used % accumulate == 0
            if not self.updater.waiting:
                self.schedule.set_epoch(epoch + number / batches)
            seed, of_run = self.config.seed, epoch * batches + number
            seed_step(seed, of_run, self.processes.rank)
            batch = augment_batch(batch, self.config.transforms, seed, of_run)
            images += int(batch.present.sum()) * self.processes.count
            total, named = self.updater.forward(batch.to(self.processes.device, non_blocking=True), last)
            for name, value in self._checked(named, batch, epoch, step + done).items():
                losses[name].append(value)
            self.updater.backward(total, last)
            if last:
                self.updater.update()
                done += 1
                now = time.monotonic()
                yield StepReport(
                    epoch=epoch + 1,
                    step=step + done,
                    in_epoch=done,
                    losses=means(losses),
                    rates=self.schedule.rates(),
                    images=images,
                    seconds=now - started,
                )
                started, images = now, 0
                losses.clear()
        self._check_used(used, epoch)

    def _check_used(self, used: int, epoch: int) -> None:
        """Say how many batches of an epoch were left out; raise `TrainingError` if all of them were."""
        batches = len(self.loader)
        if not used:
            error = TrainingError(
                f"epoch {epoch + 1}: none of its {batches} batches has two samples left, so nothing was "
                f"learned; {len(self.loader.dropped)} of {len(self.loader.dataset)} training samples were "
                f"dropped for broken files: repair them, see 'slimreid data check'; {what_is_left(epoch > 0)}"
            )
            raise error if self.processes.main else StoppedByMainError(str(error))
        if used < batches:
            logger.warning(
                "epoch %d: %d of %d batches left out, fewer than two samples of them can be read",
                epoch + 1,
                batches - used,
                batches,
            )

    def _batches(self) -> Iterator[ModalBatch]:
        """Batches of this process that a BatchNorm can work with; all processes get as many."""
        usable = (batch for batch in self.loader if len(batch) > 1)
        if self.processes.count > 1 and self.config.data.on_error == "skip":
            return while_all_have_more(usable, self.processes.device)
        return usable

    def _checked(
        self, named: dict[str, Tensor], batch: ModalBatch, epoch: int, step: int
    ) -> dict[str, float]:
        """Named scalars, the same in all processes; raises `TrainingError` if a loss is not finite."""
        stacked = torch.stack(list(named.values())).tolist()  # one wait for the device, not ten
        values = dict(zip(named, stacked, strict=True))
        if math.isnan(values[ACCURACY]):  # no head took part
            del values[ACCURACY]
        if all(map(math.isfinite, values.values())):
            return values
        samples = [paths for of_rank in gather_objects(batch.paths) for paths in of_rank]
        error = not_finite(epoch + 1, step + 1, values, samples)
        raise error if self.processes.main else StoppedByMainError(str(error))

    def weights(self) -> dict[str, Tensor]:
        """The weights that are evaluated and shared: the moving average if there is one."""
        return self.ema.average if self.ema else self.model.state_dict()

    def state(self, saved: bool = True) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
        """What training needs besides `weights`: tensors, and plain values of optimizer and scaler.

        Raises `TrainingError` when a weight is not finite; `saved`: whether an earlier checkpoint exists.
        """
        own = self.model.state_dict()
        bad = [name for name, value in own.items() if not bool(value.isfinite().all())]
        if bad:
            raise TrainingError(
                f"'{bad[0]}' is no longer finite; lower optim.lr or set optim.clip_norm; "
                f"{what_is_left(saved)}"
            )
        tensors, plain = flatten_optimizer(self.optimizer)
        training = {f"{_OPTIMIZER}{name}": value for name, value in tensors.items()}
        if self.ema:
            training |= {f"{_WEIGHTS}{name}": value for name, value in own.items()}
            training[UPDATES] = torch.tensor(self.ema.updates)
        return training, plain, self.scaler.state_dict()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take everything from a checkpoint; raises `ModelError` or `TrainingError` when it does not fit."""
        own, training = checkpoint.model, checkpoint.training
        where = f"the checkpoint of epoch {checkpoint.state.epoch}"
        if self.ema:
            if UPDATES not in training:
                raise TrainingError(f"{where} has no moving average; resume from another checkpoint")
            own = _with_prefix(training, _WEIGHTS)
            self.ema.load_state_dict({**checkpoint.model, UPDATES: training[UPDATES]})
        load_state(self.model, own, where)
        restore_optimizer(self.optimizer, _with_prefix(training, _OPTIMIZER), checkpoint.state.optimizer)
        if checkpoint.state.scaler:
            self.scaler.load_state_dict(checkpoint.state.scaler)


def means(values: dict[str, list[float]]) -> dict[str, float]:
    """The mean of each list, exact to the last bit whatever the order."""
    return {name: math.fsum(numbers) / len(numbers) for name, numbers in values.items()}


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
