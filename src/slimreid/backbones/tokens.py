"""The tokens between two blocks, as plain data, and the hook by which a caller may change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from slimreid.errors import ModelError


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
    """(B, T − prefix) int64: the patch that each token is, −1 for leftovers; None = all patches in order."""
    grid: tuple[int, int] | None = None
    """Patches (down, across) of the whole image, if known."""
    leftovers: int = 0
    """How many of the last tokens are leftovers, which stand for several dropped patches."""
    leftover_mass: Tensor | None = None
    """(B, leftovers): log-weight that each of them has gathered."""
    size: Tensor | None = None
    """(B, T − prefix): how many patches each patch token stands for; None = one each."""
    key_bias: Tensor | None = None
    """(B, T): added to the attention logits of the blocks that follow; None = nothing."""
    attention: Tensor | None = None
    """(B, T): attention that the class token paid in the preceding block, where it was asked for."""
    trace: tuple[Any, ...] = ()
    """What hooks have recorded so far; the backbone only passes it on."""

    @property
    def patches(self) -> Tensor:
        """(B, T − prefix, C): the tokens without class and registers."""
        return self.x[:, self.prefix :]


BlockHook = Callable[[int, TokenState], TokenState]
"""Called with the number of the next block (from 0) and the tokens; returns the tokens to go on with."""


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
    if after.positions.shape[0] not in (B, 1) or after.positions.shape[1:] != (T - after.prefix, 2):
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
