"""What a model weighs and costs, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from slimreid.models.reid_model import ReIDModel


@dataclass(frozen=True)
class PartSummary:
    """One part of a model."""

    name: str
    parameters: int
    gflops: float
    """Billions of multiply-adds for one sample with all modalities."""


@dataclass(frozen=True)
class ModelSummary:
    """Parameters, cost and shapes of a model for one sample with all its modalities."""

    parts: tuple[PartSummary, ...]
    parameters: int
    gflops: float
    tokens: tuple[tuple[str, int], ...]
    """Stage -> tokens per modality after it."""
    features: dict[str, int]
    """Feature -> its size."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "parts": [vars(part) for part in self.parts],
            "parameters": self.parameters,
            "gflops": self.gflops,
            "tokens": dict(self.tokens),
            "features": dict(self.features),
        }


def summarise(model: ReIDModel) -> ModelSummary:
    """Count parameters and multiply-adds of a forward pass in test mode.

    Multiply-adds are what the field calls FLOPs. Fused attention is counted like the two matrix
    products that it is.
    """
    was_training = model.training
    model.eval()
    height, width = model.backbone.image_size
    device = next(model.parameters()).device
    images = {name: torch.zeros(1, 3, height, width, device=device) for name in model.modalities}
    cameras = torch.zeros(1, dtype=torch.int64, device=device)
    with FlopCounterMode(display=False, custom_mapping=_FUSED) as counter:
        output = model(images, cameras, with_slimmed=True)
    model.train(was_training)
    counts = counter.get_flop_counts()
    gflops = counter.get_total_flops() / 2e9
    cost = {n: _flops(counts, f"{type(model).__name__}.{n}", p) / 2e9 for n, p in model.named_children()}
    if model.slimmer is not None:  # called by its rows, past the counter's hooks: the rest is its share
        cost["slimmer"] = gflops - sum(cost.values())
    sizes = {n: sum(p.numel() for p in part.parameters()) for n, part in model.named_children()}
    parts = [PartSummary(name, size, cost[name]) for name, size in sizes.items() if size]
    stages = [("patches", model.backbone.grid[0] * model.backbone.grid[1])]
    if output.slimmed is not None:
        stages.append(("kept", output.slimmed.selection.kept.shape[-2]))
        if output.slimmed.weights:
            stages.append(("merged", output.slimmed.weights[0].shape[-2]))
        stages.append(("with leftover", output.slimmed.tokens.shape[-2]))
    total = sum(p.numel() for p in model.parameters())
    return ModelSummary(tuple(parts), total, gflops, tuple(stages), dict(model.sizes))


def _attention_flops(q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: Any, **__: Any) -> int:
    """Two products per head: (Tq, d)·(d, Tk) and (Tq, Tk)·(Tk, dv)."""
    B, H, Tq, D = q
    return 2 * B * H * Tq * k[-2] * (D + v[-1])


_FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}


def _flops(counts: dict[str, Any], name: str, part: nn.Module) -> float:
    """Multiply-adds × 2 counted inside a part; a dict of modules is the sum of its members."""
    if isinstance(part, nn.ModuleDict):
        return sum(_flops(counts, f"{name}.{key}", child) for key, child in part.items())
    return float(sum(counts.get(name, {}).values()))
