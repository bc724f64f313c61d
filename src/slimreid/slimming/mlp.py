"""Two-layer networks of several groups of rows (one per modality), run as one batched product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ALIGNMENT = 8


class Layers(NamedTuple):
    """Parameters of G networks Linear(C, H) · GELU · Linear(H, O), stacked."""

    weight1: Tensor
    """(G, C, H)"""
    bias1: Tensor
    """(G, 1, H)"""
    weight2: Tensor
    """(G, H, O)"""
    bias2: Tensor
    """(G, 1, O)"""


def stack_layers(
    pairs: Sequence[tuple[nn.Linear, nn.Linear]], norms: Sequence[nn.LayerNorm] | None = None
) -> Layers:
    """Stack the parameters of equal networks, one per group.

    The gain and bias of a LayerNorm in front (`norms`) are folded into the first layer, so that one
    plain normalisation serves all groups. The hidden width is padded to a multiple of eight with
    units that stay at zero: matrix kernels are up to a third slower at widths like 102.
    """
    weight1 = torch.stack([first.weight for first, _ in pairs])  # (G, H, C)
    bias1 = torch.stack([first.bias for first, _ in pairs])
    weight2 = torch.stack([second.weight for _, second in pairs])  # (G, O, H)
    bias2 = torch.stack([second.bias for _, second in pairs])
    if norms is not None:
        gain = torch.stack([norm.weight for norm in norms])  # (G, C)
        shift = torch.stack([norm.bias for norm in norms])
        bias1 = bias1 + torch.bmm(weight1, shift[..., None])[..., 0]
        weight1 = weight1 * gain[:, None]
    padding = -weight1.shape[1] % _ALIGNMENT
    if padding:
        weight1 = F.pad(weight1, (0, 0, 0, padding))
        bias1, weight2 = F.pad(bias1, (0, padding)), F.pad(weight2, (0, padding))
    return Layers(weight1.transpose(1, 2), bias1[:, None], weight2.transpose(1, 2), bias2[:, None])


def grouped_mlp(rows: Tensor, layers: Layers, sizes: Sequence[int]) -> Tensor:
    """Send each group of rows through its own network.

    rows (R, N, C) sorted by group, `sizes` the number of rows of each group (their sum is R), or of
    all rows together when the networks are shared (G = 1) -> (R, N, O).
    """
    R, N, C = rows.shape
    O = layers.weight2.shape[-1]  # noqa: E741
    if len(set(sizes)) == 1:
        # Every group has the same number of rows: the batch of the product is the group.
        flat = rows.reshape(len(sizes), sizes[0] * N, C)
        return _run(flat, layers).reshape(R, N, O)
    parts = rows.split(list(sizes))
    outputs = [
        _run(part.reshape(1, -1, C), Layers(*(p[g : g + 1] for p in layers))).reshape(-1, N, O)
        for g, part in enumerate(parts)
    ]
    return torch.cat(outputs)


def _run(flat: Tensor, layers: Layers) -> Tensor:
    """(G, L, C) -> (G, L, O)"""
    hidden = F.gelu(torch.baddbmm(layers.bias1, flat, layers.weight1))
    return torch.baddbmm(layers.bias2, hidden, layers.weight2)
