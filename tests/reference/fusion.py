"""HDM, ATMoE and global–local as plain loops over samples, subsets, heads and channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def quick_gelu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-1.702 * x))


def mean_by_size(tokens: Tensor, size=None) -> Tensor:
    """Mean of tokens (T, C), each as often as its size (T,) says."""
    sizes = [1.0] * len(tokens) if size is None else [float(s) for s in size]
    return sum(s * token for s, token in zip(sizes, tokens, strict=True)) / sum(sizes)


def layer_norm(x: Tensor, norm) -> Tensor:
    mean = x.mean()
    variance = ((x - mean) ** 2).mean()
    return (x - mean) / math.sqrt(float(variance) + norm.eps) * norm.weight + norm.bias


def global_local(global_: Tensor, mean: Tensor, module) -> Tensor:
    """One global vector (C,) and the mean (C,) of its patches -> (C,)."""
    x = layer_norm(torch.cat([global_, mean]), module.norm)
    return quick_gelu(module.reduce.weight @ x + module.reduce.bias)


def attend(query: Tensor, tokens: Tensor, in_w, in_b, out_w, out_b, heads: int, sizes=None) -> Tensor:
    """One query (C,) over tokens (T, C), head by head; a token counts as `sizes` (T,) tokens."""
    sizes = [1.0] * len(tokens) if sizes is None else [float(s) for s in sizes]
    C = len(query)
    D = C // heads
    q = in_w[:C] @ query + in_b[:C]
    result = torch.zeros(C, dtype=query.dtype)
    for h in range(heads):
        part = slice(h * D, (h + 1) * D)
        logits, values = [], []
        for token in tokens:
            k = (in_w[C : 2 * C] @ token + in_b[C : 2 * C])[part]
            values.append((in_w[2 * C :] @ token + in_b[2 * C :])[part])
            logits.append(float(q[part] @ k) / math.sqrt(D))
        top = max(logits)
        weights = [s * math.exp(logit - top) for s, logit in zip(sizes, logits, strict=True)]
        result[part] = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    return out_w @ result + out_b


def hdm(tokens: Tensor, present: Tensor, module, size=None) -> Tensor:
    """tokens (B, M, T, C), present (B, M) -> (B, S, C), zero for subsets without a present member."""
    B, _, _, C = tokens.shape
    out = torch.zeros(B, len(module.subsets), C, dtype=tokens.dtype)
    for s, (subset, layer) in enumerate(zip(module.subsets, module.attention.values(), strict=True)):
        members = [module.modalities.index(name) for name in subset]
        for b in range(B):
            here = [m for m in members if present[b, m]]
            if here:
                out[b, s] = attend(
                    module.queries[s, 0],
                    torch.cat([tokens[b, m] for m in here]),
                    layer.in_proj_weight,
                    layer.in_proj_bias,
                    layer.out_proj.weight,
                    layer.out_proj.bias,
                    layer.num_heads,
                    None if size is None else torch.cat([size[b, m] for m in here]),
                )
    return out


def batch_norm(x: Tensor, norm, lo: int, hi: int) -> Tensor:
    """Channels lo … hi − 1 of a BatchNorm in test mode."""
    scale = norm.weight[lo:hi] / torch.sqrt(norm.running_var[lo:hi] + norm.eps)
    return (x - norm.running_mean[lo:hi]) * scale + norm.bias[lo:hi]


def atmoe(features: Tensor, module) -> Tensor:
    """features (B, S, C) -> (B, S, C), in test mode."""
    B, S, C = features.shape
    H = module.heads
    D = C // H
    out = torch.zeros_like(features)
    for b in range(B):
        joint = quick_gelu(module.joint.weight @ features[b].reshape(-1) + module.joint.bias)
        q = module.query.weight @ batch_norm(joint, module.joint_norm, 0, C)
        keys = [module.key.weight @ features[b, s] for s in range(S)]
        for h in range(H):
            part = slice(h * D, (h + 1) * D)
            logits = [float(q[part] @ k[part]) / math.sqrt(D) for k in keys]
            weights = [math.exp(logit - max(logits)) for logit in logits]
            for s in range(S):
                x = module.expert_weight[h, s] @ features[b, s, part] + module.expert_bias[h, s]
                at = (h * S + s) * D
                x = batch_norm(quick_gelu(x), module.expert_norm, at, at + D)
                out[b, s, part] = weights[s] / sum(weights) * x
    return out


def fill_absent(blocks: Tensor, present: Tensor, weight: float) -> Tensor:
    """Blocks (B, S, C), those that are absent replaced by `weight` times the mean of the present ones."""
    filled = blocks.clone()
    for b, row in enumerate(present.tolist()):
        there = [blocks[b, s] for s, here in enumerate(row) if here]
        for s, here in enumerate(row):
            if not here:
                filled[b, s] = sum(there) / len(there) * weight
    return filled


def join_blocks(blocks: Tensor, present: Tensor, normalise: bool, weight: float) -> Tensor:
    """One row per sample: its blocks, of length 1 if asked for, one after the other."""
    if normalise:
        scaled = [[block / math.sqrt(float(sum(block**2))) for block in sample] for sample in blocks]
        blocks = torch.stack([torch.stack(sample) for sample in scaled])
    return torch.stack([torch.cat(list(sample)) for sample in fill_absent(blocks, present, weight)])
