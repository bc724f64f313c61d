"""Devices, and number formats of the forward pass on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Literal

import torch

from slimreid.amx import amx_works
from slimreid.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_ISA_VARIABLE, _ISA_WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
TRIAL = (
    "import torch; torch.nn.Linear(64, 64, dtype=torch.bfloat16)(torch.ones(64, 64, dtype=torch.bfloat16))"
)
"""A bf16 product, which AMX computes where torch finds it."""


def choose_device(name: str | None = None) -> torch.device:
    """The device named, or a GPU if there is one; raises `ConfigError` for one that cannot be used."""
    if name is None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(f"device '{name}' cannot be used ({reason}); use cpu, or leave it out") from None
    return device


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Within the block torch computes on so many CPU threads; None = as many as before."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise `ConfigError` for a precision the device does not train in; makes bf16 on CPU safe."""
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError("train.precision 'fp16' needs a GPU; use 'bf16' or 'fp32' on CPU")
    if precision == "bf16" and device.type == "cpu":
        guard_amx()


def usable_precision(precision: Precision, device: torch.device) -> Precision:
    """The precision a model was trained in where the device has it, else float32, which is never less."""
    return "fp32" if precision == "fp16" and device.type == "cpu" else precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a forward pass has the given precision."""
    if precision == "fp32":
        return nullcontext()
    if device.type == "cpu":
        guard_amx()
    return torch.autocast(device.type, dtype=_HALVES[precision])


@cache
def guard_amx() -> None:
    """Keep oneDNN from AMX where the CPU announces it but faults on it, as in some virtual machines.

    There any bf16 or int8 product kills the process, so one is tried in a child process first. The limit
    holds for this process and its children, and must come before its first product: oneDNN reads the variable
    only once. A value the user has set is left alone.
    """
    if _ISA_VARIABLE in os.environ or not _announces_amx():
        return
    if not amx_works(f"torch {torch.__version__}", TRIAL):
        os.environ[_ISA_VARIABLE] = _ISA_WITHOUT_AMX


def _announces_amx() -> bool:
    announced = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return announced is not None and bool(announced())
