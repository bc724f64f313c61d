"""The state of an optimizer as named tensors and plain values, and back; no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from slimreid.errors import TrainingError


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer as named tensors and as plain values for JSON."""
    full = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {"groups": full["param_groups"], "state": {}}
    for number, values in full["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value
            else:
                plain["state"].setdefault(str(number), {})[name] = value
    return tensors, plain


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Put back what `flatten_optimizer` took; raises `TrainingError` when parameters do not match."""
    if not {"groups", "state"} <= plain.keys():
        raise TrainingError("the checkpoint has no state of the optimizer; go on from another checkpoint")
    groups = [dict(group) for group in plain["groups"]]
    now = optimizer.state_dict()["param_groups"]
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in now]:
        raise TrainingError("the checkpoint's optimizer belongs to other parameters; start a new run")
    for group, own in zip(groups, now, strict=True):
        # JSON has no tuples, and which kernel is used is a matter of this machine.
        group |= {key: tuple(group[key]) for key, value in own.items() if isinstance(value, tuple)}
        group |= {key: own[key] for key in ("fused", "foreach") if key in own}
    state: dict[int, dict[str, Any]] = {int(k): dict(v) for k, v in plain["state"].items()}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})
