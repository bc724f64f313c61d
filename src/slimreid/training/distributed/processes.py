"""Several processes: who is who, and how they exchange rows, scalars and objects.

`accelerate` finds the device and the processes (CPU, one GPU, `torchrun`, `accelerate launch`, several
nodes). Sharding and seeding of the data are done by our sampler alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from slimreid.errors import TrainingError
from slimreid.training.distributed.failures import is_lost_connection, lost_connection

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all that train together."""

    rank: int
    count: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the process that writes and logs."""
        return self.rank == 0


def join_processes() -> Processes:
    """Find the device, and the other processes if there are any.

    Raises `TrainingError` when the place where they meet cannot be reached.
    """
    try:
        # Without an accelerator it must be told so, or it takes every process for the only one.
        state = PartialState(cpu=not torch.accelerator.is_available())
    except RuntimeError as error:
        if is_lost_connection(error):
            raise lost_connection("joining the other processes", error) from error
        raise
    return Processes(state.process_index, state.num_processes, state.device)


def leave_processes() -> None:
    """Say goodbye to the other processes; nothing happens where there are none."""
    if dist.is_initialized():
        PartialState().destroy_process_group()


def _alone() -> bool:
    return not dist.is_initialized() or dist.get_world_size() == 1


def wrap(module: nn.Module, processes: Processes) -> nn.Module:
    """Let gradients be averaged over the processes; a single one gets its module back.

    Buffers of the main process are copied to the others in every step, so that all evaluate alike even
    where each has batch statistics of its own.
    """
    if processes.count == 1:
        return module
    devices = [processes.device] if processes.device.type != "cpu" else None
    return DistributedDataParallel(
        module,
        device_ids=devices,
        # A modality or head that is absent from a batch gets no gradient in that step.
        find_unused_parameters=True,
    )


class _GatherRows(torch.autograd.Function):
    """All-gather whose backward assumes that every process computes the same from the result.

    Gradients are averaged over the processes afterwards, but each holds the share of its own rows
    only, hence the factor.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, equal: bool) -> Tensor:
        parts = _gather(rows, equal)
        rank = dist.get_rank()
        ctx.start = sum(len(part) for part in parts[:rank])
        ctx.rows, ctx.count = len(rows), len(parts)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        mine = grads[0][ctx.start : ctx.start + ctx.rows]
        return mine * ctx.count, None


def gather_rows(rows: Tensor, equal: bool = False) -> Tensor:
    """Join tensors (B_rank, ...) of all processes in the order of their ranks, differentiably.

    `equal` promises that all have the same number of rows, which saves a message. Half precision is
    sent as float32, and bool as bytes, because not every backend knows them.
    """
    if _alone():
        return rows
    if rows.dtype == torch.bool:
        return cast(Tensor, _GatherRows.apply(rows.byte(), equal)).bool()  # type: ignore[no-untyped-call]
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    return cast(Tensor, _GatherRows.apply(rows, equal))  # type: ignore[no-untyped-call]


def _gather(rows: Tensor, equal: bool) -> list[Tensor]:
    """Rows of every process; shorter ones are padded on the way, as messages have one size."""
    count = dist.get_world_size()
    rows = rows.detach().contiguous()
    sizes = [len(rows)] * count
    if not equal:
        lengths = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(count)]
        dist.all_gather(lengths, torch.tensor([len(rows)], device=rows.device))
        sizes = [int(length) for length in lengths]
    longest = max(sizes)
    if len(rows) < longest:
        rows = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])
    parts = [torch.empty_like(rows) for _ in range(count)]
    dist.all_gather(parts, rows)
    return [part[:size] for part, size in zip(parts, sizes, strict=True)]


def gather_objects(value: T) -> list[T]:
    """`value` of every process, in the order of their ranks."""
    if _alone():
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def while_all_have_more(items: Iterator[T], device: torch.device) -> Iterator[T]:
    """Iterate until any process has run out, so that all take the same number of steps."""
    while True:
        item = next(items, None)
        flag = torch.tensor([item is not None], dtype=torch.int32, device=device)
        if not _alone():
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        if item is None or not bool(flag):
            return
        yield item


class StoppedByMainError(TrainingError):
    """The main process stopped the run and says why; the others only stop."""


def on_main(work: Callable[[], T], processes: Processes) -> T:
    """Run `work` in the main process and give its result to all; what it raises stops all of them.

    So only the disk of the main process needs to hold a checkpoint.
    """
    if processes.count == 1:
        return work()
    outcome: list[Any] = [None, None]  # the result, or what went wrong
    failure: Exception | None = None
    if processes.main:
        try:
            outcome[0] = work()
        except Exception as error:
            failure, outcome[1] = error, str(error)
    dist.broadcast_object_list(outcome, src=0)
    if failure is not None:
        raise failure
    value, message = outcome
    if message is not None:
        raise StoppedByMainError(message)
    return cast(T, value)
