"""Attention with gradients on a CPU: plain products against torch's fused kernel, forward and backward.

In bf16 the fused kernel's backward pass is slow, so `slimreid.backbones.layers.attend` uses plain products
there. Both take the same tensors in turn; the medians are compared.

    python benchmarks/attention.py [--images 48] [--threads 1] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.backbones.layers import attend
from slimreid.cli.console import console, table
from slimreid.devices import guard_amx

HEADS, HEAD_WIDTH = 3, 64
TOKENS = {"stride 16": 129, "stride 12": 211}


def seconds(attention: Callable[..., Tensor], tensors: Sequence[Tensor]) -> float:
    """Time of one forward and backward pass."""
    started = time.perf_counter()
    attention(*tensors).sum().backward()
    return time.perf_counter() - started


def measure(images: int, tokens: int, dtype: torch.dtype, repeats: int) -> float:
    """How many times as fast `attend` is as the fused kernel, both with gradients."""
    tensors = [torch.randn(images, HEADS, tokens, HEAD_WIDTH, dtype=dtype).requires_grad_() for _ in range(3)]
    times: dict[str, list[float]] = {"fused": [], "attend": []}
    for _ in range(repeats + 1):  # the first of each warms up
        times["fused"].append(seconds(F.scaled_dot_product_attention, tensors))
        times["attend"].append(seconds(attend, tensors))
    return statistics.median(times["fused"][1:]) / statistics.median(times["attend"][1:])


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
        f"{name}, {str(dtype).removeprefix('torch.')}": measure(
            options.images, tokens, dtype, options.repeats
        )
        for name, tokens in TOKENS.items()
        for dtype in (torch.float32, torch.bfloat16)
    }
    if options.json:
        print(json.dumps(found))
    else:
        rows = [(name, f"{ratio:.2f} ×") for name, ratio in found.items()]
        console.print(table(["attention of ViT-Tiny at 256×128", "speed against fused"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
