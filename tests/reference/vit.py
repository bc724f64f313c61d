"""Vision transformers spelt out head by head and token by token, from weights under their public names."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def layer_norm(x: Tensor, state: dict[str, Tensor], name: str, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * state[name + ".weight"] + state[name + ".bias"]


def linear(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    return x @ state[name + ".weight"].T + state[name + ".bias"]


def attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    heads: int,
    angles: Tensor | None = None,
    counts: list[int] | None = None,
) -> Tensor:
    """One image (T, C), one head after the other, without the output projection.

    `angles` (T, D/2): the pair of channels (i, i + D/2) of queries and keys turns by angles[:, i]. `counts`:
    how many times each of the T tokens is there as a key, once without.
    """
    T, C = x.shape
    counts = [1] * T if counts is None else counts
    D = C // heads
    q, k, v = (x @ weight[j * C : (j + 1) * C].T + bias[j * C : (j + 1) * C] for j in range(3))
    out = torch.zeros(T, C)
    for h in range(heads):
        part = slice(h * D, (h + 1) * D)
        qh, kh = q[:, part].clone(), k[:, part].clone()
        if angles is not None:
            qh, kh = turn(qh, angles), turn(kh, angles)
        for t in range(T):
            logits = torch.stack([(qh[t] * kh[u]).sum() / math.sqrt(D) for u in range(T)])
            weights = torch.exp(logits - logits.max()) * torch.tensor(counts)
            weights = weights / weights.sum()
            out[t, part] = sum(weights[u] * v[u, part] for u in range(T))
    return out


def turn(x: Tensor, angles: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    T, D = x.shape
    for t in range(T):
        for i in range(D // 2):
            cos, sin = math.cos(angles[t, i]), math.sin(angles[t, i])
            out[t, i] = x[t, i] * cos - x[t, i + D // 2] * sin
            out[t, i + D // 2] = x[t, i + D // 2] * cos + x[t, i] * sin
    return out


def rotary_angles(points: list[tuple[float, float]], prefix: int, head_width: int, base: float) -> Tensor:
    """Angles (prefix + len(points), head_width/2) of tokens at (y, x) in [−1, 1]."""
    rows = [[0.0] * (head_width // 2)] * prefix
    for y, x in points:
        quarter = head_width // 4
        frequencies = [base ** (-j / quarter) for j in range(quarter)]
        rows = [*rows, [2 * math.pi * c * f for c in (y, x) for f in frequencies]]
    return torch.tensor(rows)


def patches(image: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int]) -> Tensor:
    """Patch embedding of one image (3, H, W), by cutting out one patch after the other."""
    size = weight.shape[2]
    _, H, W = image.shape
    out = []
    for top in range(0, H - size + 1, stride[0]):
        for left in range(0, W - size + 1, stride[1]):
            cut = image[:, top : top + size, left : left + size]
            out.append((weight * cut).sum((1, 2, 3)))
    x = torch.stack(out)
    return x if bias is None else x + bias


def bilinear(table: Tensor, source: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Positions (h·w, C) to another grid, each new cell from its four neighbours (edges repeated)."""
    (h, w), (H, W) = source, target
    cells = table.reshape(h, w, -1)
    out = []
    for i in range(H):
        for j in range(W):
            y = max((i + 0.5) * h / H - 0.5, 0)
            x = max((j + 0.5) * w / W - 0.5, 0)
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
            a, b = y - y0, x - x0
            upper = (1 - b) * cells[y0, x0] + b * cells[y0, x1]
            lower = (1 - b) * cells[y1, x0] + b * cells[y1, x1]
            out.append((1 - a) * upper + a * lower)
    return torch.stack(out)


def openai_clip(
    state: dict[str, Tensor],
    image: Tensor,
    heads: int,
    stride: tuple[int, int],
    camera: Tensor | None = None,
) -> Tensor:
    """All tokens (1 + N, output) of one image by the vision tower of CLIP, names as OpenAI's."""
    x = patches(image, state["conv1.weight"], None, stride)
    first = state["class_embedding"] if camera is None else state["class_embedding"] + camera
    x = torch.cat([first[None], x]) + state["positional_embedding"]
    x = layer_norm(x, state, "ln_pre", 1e-5)
    depth = 1 + max(int(key.split(".")[2]) for key in state if key.startswith("transformer."))
    for i in range(depth):
        at = f"transformer.resblocks.{i}"
        y = layer_norm(x, state, f"{at}.ln_1", 1e-5)
        y = attention(y, state[f"{at}.attn.in_proj_weight"], state[f"{at}.attn.in_proj_bias"], heads)
        x = x + linear(y, state, f"{at}.attn.out_proj")
        y = linear(layer_norm(x, state, f"{at}.ln_2", 1e-5), state, f"{at}.mlp.c_fc")
        x = x + linear(y / (1 + torch.exp(-1.702 * y)), state, f"{at}.mlp.c_proj")
    return layer_norm(x, state, "ln_post", 1e-5) @ state["proj"]


def timm_vit(
    state: dict[str, Tensor],
    image: Tensor,
    heads: int,
    stride: tuple[int, int],
    camera: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """All tokens (1 + N, C) of one image by an ImageNet ViT, names as timm's."""
    x = patches(image, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride)
    x = torch.cat([state["cls_token"][0], x]) + state["pos_embed"][0]
    if camera is not None:
        x = x + camera
    depth = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("blocks."))
    for i in range(depth):
        at = f"blocks.{i}"
        y = layer_norm(x, state, f"{at}.norm1", eps)
        y = attention(y, state[f"{at}.attn.qkv.weight"], state[f"{at}.attn.qkv.bias"], heads)
        x = x + linear(y, state, f"{at}.attn.proj")
        y = linear(layer_norm(x, state, f"{at}.norm2", eps), state, f"{at}.mlp.fc1")
        x = x + linear(0.5 * y * (1 + torch.erf(y / math.sqrt(2))), state, f"{at}.mlp.fc2")
    return layer_norm(x, state, "norm", eps)
