"""Features of a model: its kinds (branches, and both together), and what can go wrong with them. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slimreid.config.model import BOTH
from slimreid.errors import ConfigError, DataError, ModelError, is_out_of_memory

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


@contextmanager
def memory_explained(samples: int) -> Iterator[None]:
    """Raise `ModelError` with a cure where a batch of so many samples does not fit into memory."""
    try:
        yield
    except Exception as error:  # torch and onnxruntime raise errors of their own
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"not enough memory to embed {samples} samples at once; take fewer with --batch"
        ) from None


def check_finite(features: Floats, names: Sequence[object]) -> None:
    """Raise `DataError` naming the first of the samples whose feature, a row of (B, D), is not finite."""
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{names[wrong[0]]}: its feature has NaN or infinity ({len(wrong)} of {len(features)} samples); "
            "are the weights whole, and was the model trained in this precision?"
        )
