"""The tokens between two blocks, and what a caller may do to them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.errors import ModelError
from slimreid.models.positions import mean_coordinates
from slimreid.slimming import PatchScores, Selection
from slimreid.slimming.selection import take, take_and_mix


@dataclass(frozen=True)
class TokenState:
    """Tokens on their way through the blocks, and where they stand in the image.

    Learned positions are already part of the tokens. Rotary ones are computed from `positions`, which
    are continuous coordinates, so every token has one: a kept patch its own, a merged or leftover token
    the mean coordinate of the patches it stands for, weighted as they are.
    """

    x: Tensor
    """(B, T, C): `prefix` special tokens (class, registers), then T − prefix patch tokens."""
    prefix: int
    """Number of special tokens; they cannot be removed."""
    positions: Tensor
    """(B or 1, T − prefix, 2): centre (y, x) of each patch token in [−1, 1]."""
    index: Tensor | None = None
    """(B, T − prefix) int64: the patch that each token is, −1 for mixtures; None = all patches in order."""
    grid: tuple[int, int] | None = None
    """Patches (down, across) of the whole image, if known."""
    mixtures: int = 0
    """How many of the last tokens stand for several patches, such as leftovers."""
    size: Tensor | None = None
    """(B, T − prefix): how many patches each patch token stands for; None = one each."""
    mass: Tensor | None = None
    """(B, mixtures): log-weight that each of them has gathered, for those who mix further."""
    decision: Tensor | None = None
    """(B, T − prefix − mixtures): the product of all decisions D on each patch; 1, but with a gradient."""
    key_bias: Tensor | None = None
    """(B, T): added to the attention logits of the blocks that follow; None = nothing."""
    attention: Tensor | None = None
    """(B, T): attention that the class token paid in the preceding block, if it was watched."""
    chosen: tuple[Selection, ...] = ()
    """The choices made so far, as a trace; positions are those of the original patches."""

    @property
    def patches(self) -> Tensor:
        """(B, T − prefix, C): the tokens without class and registers."""
        return self.x[:, self.prefix :]

    def keep(self, index: Tensor) -> TokenState:
        """Keep the patch tokens at `index` (B, K), in that order, each with its position."""
        B, _, C = self.patches.shape
        if index.ndim != 2 or len(index) != B:
            raise ModelError(f"index to keep must be ({B}, K), not {tuple(index.shape)}")
        kept = self.patches.gather(1, index[..., None].expand(-1, -1, C))
        places = self.positions.expand(B, -1, -1).gather(1, index[..., None].expand(-1, -1, 2))
        origin = index if self.index is None else self.index.gather(1, index)
        return self._with(kept, places, origin)

    def merge(self, weights: Tensor) -> TokenState:
        """Replace the N patch tokens by n weighted sums, `weights` (B, n, N); positions: weighted means."""
        B, N, _ = self.patches.shape
        if weights.ndim != 3 or (len(weights), weights.shape[2]) != (B, N):
            raise ModelError(f"weights to merge must be ({B}, n, {N}), not {tuple(weights.shape)}")
        places = mean_coordinates(self.positions, weights)
        origin = torch.full(weights.shape[:2], -1, dtype=torch.int64, device=weights.device)
        with torch.autocast(self.x.device.type, enabled=False):  # tokens stay as precise as they are
            merged = weights.to(self.x.dtype) @ self.patches
        return self._with(merged, places, origin)

    def slim(self, index: Tensor, weights: Tensor | None) -> TokenState:
        """Keep the patch tokens at `index` (B, K), and mixtures of all by `weights` (B, L, N) or None behind.

        One pass over the tokens; former mixtures go on only by their weight.
        """
        B, N, _ = self.patches.shape
        if index.ndim != 2 or len(index) != B:
            raise ModelError(f"index to keep must be ({B}, K), not {tuple(index.shape)}")
        if weights is not None and (weights.ndim != 3 or weights.shape[::2] != (B, N)):
            raise ModelError(f"weights to mix must be ({B}, L, {N}), not {tuple(weights.shape)}")
        front = torch.arange(self.prefix, device=index.device).expand(B, -1)
        stay = torch.cat([front, index + self.prefix], dim=1)
        places = self.positions.expand(B, -1, -1).gather(1, index[..., None].expand(-1, -1, 2))
        origin = index if self.index is None else self.index.gather(1, index)
        if weights is None:
            return replace(self, x=take(self.x, stay), positions=places, index=origin, mixtures=0)
        kept, mixed = take_and_mix(self.x, stay, F.pad(weights, (self.prefix, 0)))
        return replace(
            self,
            x=torch.cat([kept, mixed], dim=1),
            positions=torch.cat([places, mean_coordinates(self.positions, weights)], dim=1),
            index=F.pad(origin, (0, weights.shape[1]), value=-1),
            mixtures=weights.shape[1],
        )

    def join(self, index: Tensor, weights: Tensor, size: Tensor) -> TokenState:
        """Replace the N patch tokens by those at `index` (B, K) and what joined them.

        `weights` (B, K, N) and `size` (B, K) are those of `joining_weights`. Positions are weighted means;
        each token is still known as its patch of `index`.
        """
        merged = self.merge(weights)
        origin = index if self.index is None else self.index.gather(1, index)
        return replace(merged, index=origin, size=size)

    def append(self, tokens: Tensor, positions: Tensor) -> TokenState:
        """Add mixed tokens (B, n, C), such as the leftover, at `positions` (B, n, 2), after the others."""
        B, N, C = self.patches.shape
        n = tokens.shape[1]
        if tokens.shape != (B, n, C) or positions.shape != (B, n, 2):
            raise ModelError(
                f"tokens to append must be ({B}, n, {C}) with positions ({B}, n, 2), "
                f"not {tuple(tokens.shape)} with {tuple(positions.shape)}"
            )
        device = self.x.device
        origin = torch.arange(N, device=device).expand(B, N) if self.index is None else self.index
        return self._with(
            torch.cat([self.patches, tokens.to(self.x.dtype)], dim=1),
            torch.cat([self.positions.expand(B, -1, -1), positions.to(self.positions.dtype)], dim=1),
            torch.cat([origin, torch.full((B, n), -1, dtype=torch.int64, device=device)], dim=1),
        )

    def _with(self, patches: Tensor, positions: Tensor, index: Tensor) -> TokenState:
        x = torch.cat([self.x[:, : self.prefix], patches], dim=1)
        return replace(self, x=x, positions=positions, index=index)


Between = Callable[[int, TokenState], TokenState]
"""Called with the number of the next block (from 0) and the tokens; returns the tokens to go on with."""


def original_patches(state: TokenState, n: int) -> Tensor:
    """(B, n) int64: the patch of the image that each of the first n patch tokens is."""
    if state.index is None:
        return torch.arange(n, device=state.x.device).expand(len(state.x), n)
    return state.index[:, :n]


def record_choice(
    before: TokenState,
    after: TokenState,
    scores: PatchScores,
    index: Tensor,
    decision: Tensor | None,
    sources: Mapping[str, Tensor],
) -> TokenState:
    """Add a choice to the trace of `after`, told by the original patches of the image.

    scores (B, n) and sources of the n patch tokens before, index (B, K) of the kept ones among them,
    decision (B, n) if it is more than that. Patches that were dropped earlier have zeros everywhere.
    """
    B, n = scores.total.shape
    origin = original_patches(before, n)
    total = n if before.grid is None else before.grid[0] * before.grid[1]

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(B, total).scatter(1, origin, values)

    hard = torch.zeros_like(scores.total).scatter(1, index, 1.0)
    end = after.patches.shape[1] - after.mixtures
    selection = Selection(
        index=origin.gather(1, index),
        kept=after.patches[:, :end],
        decision=spread(hard if decision is None else decision),
        score=spread(scores.total),
        leftover=after.patches[:, end:] if after.mixtures else None,
        scores={name: spread(value) for name, value in sources.items()},
    )
    return replace(after, chosen=(*before.chosen, selection))


def check_change(block: int, before: TokenState, after: TokenState) -> None:
    """Raise `ModelError` unless `after` can go on through the blocks in place of `before`."""
    B, T, C = after.x.shape
    where = f"tokens returned before block {block}"
    if (before.x.shape[0], before.x.shape[2]) != (B, C):
        raise ModelError(
            f"{where}: {tuple(after.x.shape)} must keep rows and channels of {tuple(before.x.shape)}"
        )
    if after.prefix != before.prefix or before.prefix > T:
        raise ModelError(f"{where}: the {before.prefix} class and register tokens must stay in front")
    if after.positions.shape not in ((B, T - after.prefix, 2), (1, T - after.prefix, 2)):
        raise ModelError(
            f"{where}: {T - after.prefix} patch tokens need positions ({B} or 1, {T - after.prefix}, 2), "
            f"not {tuple(after.positions.shape)}"
        )
    if after.index is not None and after.index.shape != (B, T - after.prefix):
        raise ModelError(f"{where}: index must be ({B}, {T - after.prefix}), not {tuple(after.index.shape)}")
    if after.size is not None and after.size.shape != (B, T - after.prefix):
        raise ModelError(f"{where}: size must be ({B}, {T - after.prefix}), not {tuple(after.size.shape)}")
    if after.key_bias is not None and after.key_bias.shape != (B, T):
        raise ModelError(f"{where}: key_bias must be ({B}, {T}), not {tuple(after.key_bias.shape)}")
