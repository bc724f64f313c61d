"""Kinds of features that a model has: its branches, and both together. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slimreid.config.model import BOTH
from slimreid.errors import ConfigError

ALL = "all"
Subset = tuple[str, ...]
"""Modalities that a model is shown, in canonical order."""
Floats = NDArray[np.float32]


class HasFeatures(Protocol):
    """A model, whatever runs it, as far as its features go."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Channels of each kind of feature, `both` last."""
        ...

    @property
    def second(self) -> str | None:
        """Name of the second branch, or None without one."""
        ...


def check_kind(kind: str, kinds: Sequence[str]) -> None:
    """Raise `ConfigError` for a kind of feature that is not among those of a model."""
    if kind not in kinds:
        raise ConfigError(f"the model has no feature '{kind}'; it has {', '.join(kinds)}")


def feature_kinds(model: HasFeatures, wanted: str = ALL) -> tuple[str, ...]:
    """The kinds of features meant by `wanted`; raises `ConfigError` for one that the model does not have."""
    if wanted != ALL:
        check_kind(wanted, tuple(model.sizes))
        return (wanted,)
    # Without a second branch both together are the first one again.
    return tuple(kind for kind in model.sizes if kind != BOTH or model.second)


def join_branches(branches: Mapping[str, Floats], kind: str) -> Floats:
    """L2-normalised features (n, D) of a kind from the branches of a model, each (n, C)."""
    joined = np.concatenate(list(branches.values()), axis=1) if kind == BOTH else branches[kind]
    unit: Floats = joined / np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), np.float32(1e-12))
    return unit
