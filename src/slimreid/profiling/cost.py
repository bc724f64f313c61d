"""What a model weighs and costs, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from slimreid.models.heads import ReIDOutput
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
    block_tokens: tuple[int, ...]
    """Tokens per modality that enter each block of the backbone, class and register tokens included."""
    features: dict[str, int]
    """Feature -> its size."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        parts = [vars(part) for part in self.parts]
        tokens, block_tokens = dict(self.tokens), list(self.block_tokens)
        return {**vars(self), "parts": parts, "tokens": tokens, "block_tokens": block_tokens}


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
    entering: list[int] = []
    hooks = [
        block.register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0].shape[1]))
        for block in model.backbone.blocks
    ]
    try:
        with FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
            output = model(images, cameras, with_reduced=True)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    total = sum(p.numel() for p in model.parameters())
    parts, gflops = _parts(model, counter)
    return ModelSummary(parts, total, gflops, _stages(model, output), tuple(entering), dict(model.sizes))


def _parts(model: ReIDModel, counter: FlopCounterMode) -> tuple[tuple[PartSummary, ...], float]:
    """Cost of each part and of all."""
    counts, gflops = counter.get_flop_counts(), counter.get_total_flops() / 2e9
    cost = {n: _flops(counts, f"{type(model).__name__}.{n}", p) / 2e9 for n, p in model.named_children()}
    if model.in_backbone is not None:  # its stages run within the backbone's forward
        cost["backbone"] -= cost["in_backbone"]
    if model.after_backbone is not None:  # called past the counter's hooks: the rest is its share
        cost["after_backbone"] = gflops - sum(cost.values())
    sizes = {n: sum(p.numel() for p in part.parameters()) for n, part in model.named_children()}
    shown = [n for n, size in sizes.items() if size or n == "in_backbone"]
    return tuple(PartSummary(name, sizes[name], cost[name]) for name in shown), gflops


def _stages(model: ReIDModel, output: ReIDOutput) -> tuple[tuple[str, int], ...]:
    """Tokens per modality along the way."""
    stages = [("patches", model.backbone.grid[0] * model.backbone.grid[1])]
    reduced = output.reduced
    if reduced is None:
        return tuple(stages)
    stages.append(("kept", reduced.selections[-1].kept.shape[-2]))
    if reduced.weights:
        stages.append(("merged", reduced.weights[0].shape[-2]))
    if reduced.selections[-1].leftover is not None:
        stages.append(("with leftover", reduced.tokens.shape[-2]))
    return tuple(stages)


def _attention_flops(q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: Any, **__: Any) -> int:
    """Two products per head: (Tq, d)·(d, Tk) and (Tq, Tk)·(Tk, dv)."""
    B, H, Tq, D = q
    return 2 * B * H * Tq * k[-2] * (D + v[-1])


FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}


def _flops(counts: dict[str, Any], name: str, part: nn.Module) -> float:
    """Multiply-adds × 2 counted inside a part; a dict of modules is the sum of its members."""
    if isinstance(part, nn.ModuleDict):
        return sum(_flops(counts, f"{name}.{key}", child) for key, child in part.items())
    return float(sum(counts.get(name, {}).values()))
