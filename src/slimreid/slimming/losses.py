"""Losses that push the share of kept patches towards a target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slimreid.errors import ConfigError

RATIO_LOSSES = ("none", "paper", "released")


def ratio_loss(
    decisions: Sequence[Tensor], ratio: float, form: str = "paper", lambdas: Sequence[float] | None = None
) -> Tensor:
    """Squared distance of the share kept from `ratio`, a scalar.

    `decisions`: one matrix D (…, N) per branch. `paper`: (ρ − Σ λ_i·mean D_i)², λ = 1 unless given;
    `released`: (mean(Σ D_i) − ρ)². With a fixed K both are constant; they act only where the number
    kept can vary. An empty batch has no loss. Raises `ConfigError` on an unknown form or on a number
    of λ that does not fit.
    """
    if form not in RATIO_LOSSES[1:]:
        raise ConfigError(f"ratio loss '{form}' is not one of {', '.join(RATIO_LOSSES[1:])}")
    lambdas = [1.0] * len(decisions) if lambdas is None else lambdas
    if len(lambdas) < len(decisions):
        raise ConfigError(f"{len(decisions)} decisions need as many ratio_lambdas, not {len(lambdas)}")
    if decisions[0].numel() == 0:
        return decisions[0].sum()
    if form == "released":
        return (torch.stack(tuple(decisions)).sum(0).mean() - ratio) ** 2
    kept = torch.stack([weight * d.mean() for weight, d in zip(lambdas, decisions, strict=False)])
    return (ratio - kept.sum()) ** 2
