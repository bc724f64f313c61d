"""Small models and random weights under public names, shared by the tests of the backbone."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from slimreid.backbones.vit import ViT
from slimreid.config.backbones import ViTConfig, vit_config

SMALL = {"width": 64, "depth": 2, "heads": 2, "mlp_width": 96, "patch_size": 8}


def small(name: str, **changes: object) -> ViTConfig:
    """A named style at a size for tests."""
    return replace(vit_config(name), **{**SMALL, **changes})


def random_vit(config: ViTConfig, image_size: tuple[int, int], seed: int = 0) -> ViT:
    """A ViT in eval mode whose every parameter matters: none is left at 0 or 1."""
    torch.manual_seed(seed)
    vit = ViT(config, image_size).eval()
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return vit


def clip_state(
    width: int = 64, depth: int = 2, mlp: int = 96, patch: int = 8, cells: int = 4, out: int = 48
) -> dict[str, Tensor]:
    """Random vision tower of CLIP under OpenAI's names."""
    shapes: dict[str, tuple[int, ...]] = {
        "class_embedding": (width,),
        "positional_embedding": (1 + cells, width),
        "proj": (width, out),
        "conv1.weight": (width, 3, patch, patch),
    }
    for name in ("ln_pre", "ln_post"):
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for i in range(depth):
        at = f"transformer.resblocks.{i}"
        shapes |= {
            f"{at}.attn.in_proj_weight": (3 * width, width),
            f"{at}.attn.in_proj_bias": (3 * width,),
            f"{at}.attn.out_proj.weight": (width, width),
            f"{at}.attn.out_proj.bias": (width,),
            f"{at}.mlp.c_fc.weight": (mlp, width),
            f"{at}.mlp.c_fc.bias": (mlp,),
            f"{at}.mlp.c_proj.weight": (width, mlp),
            f"{at}.mlp.c_proj.bias": (width,),
        }
        for name in ("ln_1", "ln_2"):
            shapes |= {f"{at}.{name}.weight": (width,), f"{at}.{name}.bias": (width,)}
    return _random(shapes)


def timm_state(
    width: int = 64, depth: int = 2, mlp: int = 96, patch: int = 8, cells: int = 4
) -> dict[str, Tensor]:
    """Random ImageNet ViT under timm's names, with its classifier."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + cells, width),
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
        "head.weight": (10, width),
        "head.bias": (10,),
    }
    for i in range(depth):
        for name, (rows, columns) in {
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "mlp.fc1": (mlp, width),
            "mlp.fc2": (width, mlp),
        }.items():
            shapes |= {f"blocks.{i}.{name}.weight": (rows, columns), f"blocks.{i}.{name}.bias": (rows,)}
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.weight": (width,), f"blocks.{i}.{name}.bias": (width,)}
    return _random(shapes)


def _random(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: (1.0 if name.endswith(("ln_1.weight", "norm1.weight")) else 0.0)
        + torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) == 2 else 0.2)
        for name, shape in shapes.items()
    }
