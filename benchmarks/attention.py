"""Attention with gradients on a CPU: plain products against torch's fused kernel, forward and backward.

In bf16 the fused kernel's backward pass is slow, so `slimreid.backbones.layers.attend` uses plain products
there. Both take the same tensors in turn, alone and in a whole ViT-Tiny; the medians are compared.

    python benchmarks/attention.py [--images 48] [--threads 1] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.backbones import layers
from slimreid.backbones.vit import ViT
from slimreid.cli.console import console, table
from slimreid.config.backbones import vit_config
from slimreid.devices import autocast, guard_amx

HEADS, HEAD_WIDTH = 3, 64
SIZE = (256, 128)
STRIDES = (16, 12)
PRODUCTS = layers.attend


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """What `attend` replaces."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def seconds(work: Callable[[], Tensor]) -> float:
    """Time of one forward and backward pass."""
    started = time.perf_counter()
    work().sum().backward()
    return time.perf_counter() - started


def ratio(work: Callable[[], Tensor], repeats: int) -> float:
    """How many times as fast `work` is with `attend` as with the fused kernel, both with gradients."""
    times: dict[Callable[..., Tensor], list[float]] = {fused: [], PRODUCTS: []}
    try:
        for _ in range(repeats + 1):  # the first of each warms up
            for attention, found in times.items():
                layers.attend = attention
                found.append(seconds(work))
    finally:
        layers.attend = PRODUCTS
    return statistics.median(times[fused][1:]) / statistics.median(times[PRODUCTS][1:])


def alone(images: int, stride: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """The attention of one block."""
    down, across = replace(vit_config("vit_tiny"), stride=(stride, stride)).grid(SIZE)
    shape = (images, HEADS, 1 + down * across, HEAD_WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype).requires_grad_() for _ in range(3))
    return lambda: layers.attend(q, k, v)


def whole(images: int, stride: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """All of a ViT-Tiny."""
    vit = ViT(replace(vit_config("vit_tiny"), stride=(stride, stride)), SIZE).train()
    pictures = torch.randn(images, 3, *SIZE)

    def work() -> Tensor:
        with autocast("bf16" if dtype == torch.bfloat16 else "fp32", pictures.device):
            return vit(pictures).global_.float()

    return work


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    guard_amx()
    found = {
        f"{name}, stride {stride}, {str(dtype).removeprefix('torch.')}": ratio(
            make(options.images, stride, dtype), options.repeats
        )
        for name, make in (("attention", alone), ("ViT-Tiny", whole))
        for stride in STRIDES
        for dtype in (torch.float32, torch.bfloat16)
    }
    if options.json:
        print(json.dumps(found))
    else:
        rows = [(name, f"{value:.2f} ×") for name, value in found.items()]
        console.print(table(["forward and backward at 256×128", "speed against fused"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
