"""Number formats of the forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from slimreid.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise `ConfigError` for a precision the device does not train in."""
    if precision == "fp16" and device.type == "cpu":
        raise ConfigError("train.precision 'fp16' needs a GPU; use 'bf16' or 'fp32' on CPU")


def usable_precision(precision: Precision, device: torch.device) -> Precision:
    """The precision a model was trained in where the device has it, else float32, which is never less."""
    return "fp32" if precision == "fp16" and device.type == "cpu" else precision


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a forward pass has the given precision."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_HALVES[precision])
