"""Where in a stack of blocks patches are dropped, and how many stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slimreid.errors import ConfigError

WARMUP_SHAPES = ("linear", "cosine")
Schedule = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Stage:
    """Patches are dropped once, before one block."""

    block: int
    """Number of the block (from 0) before which patches are dropped: so many blocks see them all."""
    share: float
    """Share of the original patches that stay, in (0, 1]."""


def check_schedule(schedule: Schedule) -> None:
    """Raise `ConfigError` unless positions rise within (0, 1) and shares fall within (0, 1]."""
    if not schedule:
        raise ConfigError("schedule: give at least one (position, share), such as [[0.5, 0.5]]")
    for pair in schedule:
        if len(pair) != 2:
            raise ConfigError(f"schedule: {list(pair)} is not a pair of position and share")
        position, share = pair
        if not 0 < position < 1:
            raise ConfigError(f"schedule: position {position} is not in (0, 1), as a share of the depth")
        if not 0 < share <= 1:
            raise ConfigError(f"schedule: share {share} is not in (0, 1], as a share of the original patches")
    for (before, more), (after, less) in pairwise(schedule):
        if not before < after:
            raise ConfigError(f"schedule: positions must rise, but {after} follows {before}")
        if not more > less:
            raise ConfigError(f"schedule: shares must fall, but {less} follows {more}")


def stages_of(schedule: Schedule, depth: int) -> tuple[Stage, ...]:
    """The stages of a schedule in a stack of `depth` blocks.

    A position p means that round(p · depth) blocks are done before; at least one is, and at least one
    follows. Where a shallow stack brings two stages before the same block, the smaller share counts.
    Raises `ConfigError` for a schedule that is none, or a stack too shallow to slim inside.
    """
    check_schedule(schedule)
    if depth < 2:
        raise ConfigError(f"slimming inside needs at least two blocks, not {depth}")
    found: dict[int, float] = {}
    for position, share in schedule:
        block = min(max(math.floor(position * depth + 0.5), 1), depth - 1)
        found[block] = share
    return tuple(Stage(block, share) for block, share in found.items())


def shrinking_share(share: float, progress: float, shape: str = "linear") -> float:
    """The share in force while it shrinks from 1 (progress 0) to its value (progress 1).

    Raises `ConfigError` for a shape that is not one of `WARMUP_SHAPES`.
    """
    if shape not in WARMUP_SHAPES:
        raise ConfigError(f"keep_warmup_shape: '{shape}' is unknown (known: {', '.join(WARMUP_SHAPES)})")
    if progress >= 1:
        return share
    done = max(progress, 0.0)
    if shape == "cosine":
        done = (1 - math.cos(math.pi * done)) / 2
    return 1 + (share - 1) * done
