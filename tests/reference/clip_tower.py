"""The host of the golden numbers in plain tensor code: CLIP tower, global-local, heads and losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

OLD_NAMES = {"rgb": "RGB", "nir": "NI", "tir": "TI"}
State = dict[str, Tensor]


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def norm(x: Tensor, state: State, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)


def linear(x: Tensor, state: State, name: str) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def attention(x: Tensor, state: State, name: str, heads: int) -> Tensor:
    B, N, C = x.shape
    qkv = F.linear(x, state[f"{name}.in_proj_weight"], state[f"{name}.in_proj_bias"])
    q, k, v = (part.reshape(B, N, heads, C // heads).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    weights = (q @ k.transpose(-1, -2) / (C // heads) ** 0.5).softmax(-1)
    return linear((weights @ v).transpose(1, 2).reshape(B, N, C), state, f"{name}.out_proj")


def tower(images: Tensor, cameras: Tensor, state: State, coefficient: float) -> tuple[Tensor, Tensor]:
    """images (B, 3, H, W) -> patches (B, N, C) and global (B, C)."""
    base = {name.removeprefix("BACKBONE.base."): value for name, value in state.items() if "BACKBONE" in name}
    kernel = base["conv1.weight"]
    width = kernel.shape[0]
    x = F.conv2d(images, kernel, stride=kernel.shape[-1]).flatten(2).transpose(1, 2)
    first = base["class_embedding"] + coefficient * state["BACKBONE.cv_embed"][cameras]  # (B, 1, width)
    x = torch.cat([first, x], 1) + base["positional_embedding"]
    x = norm(x, base, "ln_pre")
    layers = 1 + max(int(name.split(".")[2]) for name in base if name.startswith("transformer.resblocks."))
    for layer in range(layers):
        block = f"transformer.resblocks.{layer}"
        x = x + attention(norm(x, base, f"{block}.ln_1"), base, f"{block}.attn", width // 64)
        hidden = quick_gelu(linear(norm(x, base, f"{block}.ln_2"), base, f"{block}.mlp.c_fc"))
        x = x + linear(hidden, base, f"{block}.mlp.c_proj")
    x = norm(x, base, "ln_post") @ base["proj"]
    return x[:, 1:], x[:, 0]


def streams(golden: dict, state: State, missing: str = "") -> tuple[Tensor, Tensor]:
    """Patches (B, M, N, C) and global' (B, M, C) of all modalities; those in `missing` are zero images."""
    patches, vectors = [], []
    for name, old in OLD_NAMES.items():
        images = golden["images_int8"][old].float() * golden["image_scale"]
        if name[0] in missing:
            images = torch.zeros_like(images)
        tokens, vector = tower(images, golden["cam_label"], state, golden["options"]["MODEL.SIE_COE"])
        joined = torch.cat([vector, tokens.mean(1)], -1)
        vectors.append(quick_gelu(linear(norm(joined, state, f"{name}_reduce.0"), state, f"{name}_reduce.1")))
        patches.append(tokens)
    return torch.stack(patches, 1), torch.stack(vectors, 1)


def branch_loss(feature: Tensor, labels: Tensor, state: State, suffix: str = "") -> Tensor:
    """0.25 · smoothed cross-entropy behind a BNNeck in training mode + soft-margin batch-hard triplet."""
    gain, bias = state[f"bottleneck{suffix}.weight"], state[f"bottleneck{suffix}.bias"]
    normed = F.batch_norm(feature, None, None, gain, bias, training=True)
    identity = F.cross_entropy(normed @ state[f"classifier{suffix}.weight"].T, labels, label_smoothing=0.1)
    distance = (feature[:, None] - feature[None]).pow(2).sum(-1).clamp_min(1e-12).sqrt()
    same = labels[:, None] == labels[None]
    hardest = distance.masked_fill(~same, -torch.inf).amax(1)
    nearest = distance.masked_fill(same, torch.inf).amin(1)
    return 0.25 * identity + F.softplus(hardest - nearest).mean()
