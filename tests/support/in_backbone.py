"""Small models with token reduction in the backbone, and the same by plain loops."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference import in_backbone as reference
from reference import vit as vit_reference
from slimreid.backbones.vit import ViT
from slimreid.config.model import ReIDOptions
from slimreid.config.token_reduction import InBackboneConfig
from slimreid.models.reid_model import ReIDModel
from support.vit import random_vit, small

NAMES = ("rgb", "nir", "tir")
SIZE, GRID, N = (32, 24), (4, 3), 12
SCHEDULE = ((0.25, 0.6), (0.5, 0.25))


def reduced_in_backbone(
    style: str = "vit_b16",
    names=NAMES,
    depth: int = 4,
    missing: str = "skip",
    fusion: str = "mean",
    **options,
) -> ReIDModel:
    """A random model with 12 patches, 8 of which are left before block 2 and 3 before block 3."""
    vit = random_vit(small(style, depth=depth), SIZE)
    config = InBackboneConfig(**{"schedule": SCHEDULE, **options})
    torch.manual_seed(3)
    whole = ReIDOptions(reduction="in_backbone", in_backbone=config, missing=missing, fusion=fusion)
    return ReIDModel(vit, names, 5, whole).eval()


def images(B: int = 3, names=NAMES, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(B, 3, *SIZE, generator=generator) for name in names}


def looped_block(vit: ViT, i: int) -> reference.Block:
    """Block i for one image, head by head and token by token."""
    config, state = vit.config, {name: p.detach() for name, p in vit.blocks[i].state_dict().items()}
    bias = state["attn.qkv.bias"]
    if config.qkv_bias == "no_key":
        bias = bias * torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(config.width)

    def run(x: Tensor, points: list[reference.Point], counts: list[int]) -> tuple[Tensor, list[float]]:
        angles = None
        if config.positions == "rotary":
            angles = vit_reference.rotary_angles(points, config.prefix, config.head_width, config.rotary_base)
        y = vit_reference.layer_norm(x, state, "norm1", config.norm_eps)
        seen = class_attention(y, state["attn.qkv.weight"], bias, config.heads, angles)
        y = vit_reference.attention(y, state["attn.qkv.weight"], bias, config.heads, angles, counts)
        y = vit_reference.linear(y, state, "attn.proj")
        x = x + (y * state["scale1"] if "scale1" in state else y)
        y = vit_reference.linear(
            vit_reference.layer_norm(x, state, "norm2", config.norm_eps), state, "mlp.fc1"
        )
        act = y * torch.sigmoid(1.702 * y) if config.activation == "quick_gelu" else nn.functional.gelu(y)
        y = vit_reference.linear(act, state, "mlp.fc2")
        return x + (y * state["scale2"] if "scale2" in state else y), seen

    return run


def class_attention(
    x: Tensor, weight: Tensor, bias: Tensor, heads: int, angles: Tensor | None
) -> list[float]:
    """Mean over heads of what the first token attends to, each token taken as one patch."""
    T, C = x.shape
    D = C // heads
    total = torch.zeros(T)
    for h in range(heads):
        part = slice(h * D, (h + 1) * D)
        q, k = (x @ weight[o + h * D : o + (h + 1) * D].T + bias[o:][part] for o in (0, C))
        if angles is not None:
            q, k = vit_reference.turn(q, angles), vit_reference.turn(k, angles)
        total += torch.tensor([float((q[0] * k[t]).sum()) / D**0.5 for t in range(T)]).softmax(0)
    return (total / heads).tolist()


def looped(model: ReIDModel, sample: dict[str, Tensor]) -> dict[str, reference.Stream]:
    """One sample {modality: (3, H, W)} through the backbone by loops; final norm and projection are left."""
    vit, reducer = model.backbone, model.in_backbone
    with torch.no_grad():
        tokens = {name: vit._embed(image[None], None)[0][0] for name, image in sample.items()}
    options = reducer.options
    return reference.reduce(
        tokens,
        vit.config.prefix,
        GRID,
        [looped_block(vit, i) for i in range(vit.config.depth)],
        {stage.block: stage.share for stage in reducer.stages},
        terms=options.score_terms,
        dropped=options.dropped,
        redundancy=options.redundancy,
    )
