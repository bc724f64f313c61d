"""Operations on the tokens between two blocks: keep some, merge the others, record the selection."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.backbones.layers import mean_coordinates
from slimreid.backbones.tokens import TokenState
from slimreid.errors import ModelError
from slimreid.token_reduction.select import Selection, take, take_and_mix


def original_patches(state: TokenState, n: int) -> Tensor:
    """(B, n) int64: the patch of the image that each of the first n patch tokens is."""
    if state.index is None:
        return torch.arange(n, device=state.x.device).expand(state.x.shape[0], n)
    return state.index[:, :n]


def keep_tokens(state: TokenState, index: Tensor, weights: Tensor | None = None) -> TokenState:
    """Keep the patch tokens at `index` (B, K), with a leftover token by `weights` (B, 1, N) behind, or none.

    One pass over the tokens; a former leftover goes on only by its weight. Raises `ModelError` on shapes
    that do not fit.
    """
    B, N, _ = state.patches.shape
    if index.ndim != 2 or index.shape[0] != B:
        raise ModelError(f"index to keep must be ({B}, K), not {tuple(index.shape)}")
    if weights is not None and weights.shape != (B, 1, N):
        raise ModelError(f"weights of the leftover must be ({B}, 1, {N}), not {tuple(weights.shape)}")
    front = torch.arange(state.prefix, device=index.device).expand(B, -1)
    stay = torch.cat([front, index + state.prefix], dim=1)
    places = state.positions.expand(B, -1, -1).gather(1, index[..., None].expand(-1, -1, 2))
    origin = index if state.index is None else state.index.gather(1, index)
    if weights is None:
        return replace(state, x=take(state.x, stay), positions=places, index=origin, leftovers=0)
    kept, leftover = take_and_mix(state.x, stay, F.pad(weights, (state.prefix, 0)))
    return replace(
        state,
        x=torch.cat([kept, leftover], dim=1),
        positions=torch.cat([places, mean_coordinates(state.positions, weights)], dim=1),
        index=F.pad(origin, (0, 1), value=-1),
        leftovers=1,
    )


def merge_tokens(state: TokenState, index: Tensor, weights: Tensor, size: Tensor) -> TokenState:
    """Replace the N patch tokens by those at `index` (B, K), with the dropped ones merged into them.

    `weights` (B, K, N) and `size` (B, K) are those of `nearest_weights`. Positions are weighted means; each
    token keeps the number of its patch. The attention of the blocks that follow counts a token by its size.
    Raises `ModelError` on shapes that do not fit.
    """
    B, N, _ = state.patches.shape
    if weights.ndim != 3 or (weights.shape[0], weights.shape[2]) != (B, N):
        raise ModelError(f"weights to merge must be ({B}, n, {N}), not {tuple(weights.shape)}")
    with torch.autocast(state.x.device.type, enabled=False):  # tokens stay as precise as they are
        merged = weights.to(state.x.dtype) @ state.patches
    return replace(
        state,
        x=torch.cat([state.x[:, : state.prefix], merged], dim=1),
        positions=mean_coordinates(state.positions, weights),
        index=index if state.index is None else state.index.gather(1, index),
        size=size,
        key_bias=F.pad(size.log(), (state.prefix, 0)),
    )


def record_selection(
    before: TokenState, after: TokenState, score: Tensor, terms: dict[str, Tensor], index: Tensor
) -> TokenState:
    """Add a selection to the trace of `after`, told by the original patches of the image.

    score and terms (B, n) of the n patch tokens before, index (B, K) of the kept ones among them. Patches
    that were dropped earlier have zeros everywhere.
    """
    B, n = score.shape
    origin = original_patches(before, n)
    total = n if before.grid is None else before.grid[0] * before.grid[1]

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(B, total).scatter(1, origin, values)

    end = after.patches.shape[1] - after.leftovers
    selection = Selection(
        index=origin.gather(1, index),
        kept=after.patches[:, :end],
        decision=spread(torch.zeros_like(score).scatter(1, index, 1.0)),
        score=spread(score),
        leftover=after.patches[:, end:] if after.leftovers else None,
        scores={name: spread(value) for name, value in terms.items()},
    )
    return replace(after, trace=(*before.trace, selection))
