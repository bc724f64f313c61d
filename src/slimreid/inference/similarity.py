"""Features of a model: their kinds, and how alike samples are in them. Needs numpy only.

A feature is made of blocks, each computed from some of the modalities. Two samples are compared by the cosine
over the blocks whose modalities both have. Cosines of samples that share little lie elsewhere than those of
samples that share much, so a model file keeps, for every pair of subsets of the modalities, how alike
different training identities are. With these statistics a score means the same whatever a pair has in common:

| score | meaning                                                        |
|-------|----------------------------------------------------------------|
| 0     | as alike as two different identities usually are (median)      |
| 1     | more alike than 99 of 100 pairs of different training identities |

Without them the score is the plain cosine.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from slimreid.arrays import Bools, Floats, Ints
from slimreid.config.model import BOTH
from slimreid.errors import ConfigError, DataError, ModelError, is_out_of_memory
from slimreid.modalities import all_subsets

ALL = "all"
Subset = tuple[str, ...]
"""Modalities that a model is shown, in canonical order."""

QUANTILES = (0.5, 0.99)
"""Of the cosines of different identities: what becomes score 0 and score 1."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features of n samples, ready to be compared."""

    values: Floats
    """(n, D): blocks as they are; those that a sample lacks are zero."""
    subset: Ints
    """(n,): which subset of the modalities each sample has, in the order of `all_subsets`."""
    inverse_norms: Floats
    """(n, S): 1 / norm of what a sample shares with each subset; 0 where that is nothing."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | Ints) -> Prepared:
        return Prepared(self.values[rows], self.subset[rows], self.inverse_norms[rows])


@dataclass(frozen=True, eq=False)
class Similarity:
    """Similarity of features of one kind; calling it compares queries with a gallery.

    Without `impostors` it is the plain cosine over what both samples have.
    """

    modalities: Subset
    """Those of the model, in order."""
    blocks: tuple[Subset, ...]
    """Modalities that each of the B blocks of a feature is computed from."""
    impostors: Floats | None = None
    """(S, S, 2): median and 99th percentile of the cosine of different training identities, for each pair of
    subsets; NaN where a pair shares no block."""

    def __post_init__(self) -> None:
        S, B = len(self.subsets), len(self.blocks)
        strange = {name for block in self.blocks for name in block} - set(self.modalities)
        if not B or strange or not all(self.blocks):
            raise DataError(f"blocks {self.blocks} are not subsets of {', '.join(self.modalities)}")
        if self.impostors is None:
            return
        if self.impostors.shape != (S, S, 2):
            raise DataError(f"impostors must be ({S}, {S}, 2), not {self.impostors.shape}")
        low, high = np.moveaxis(self.impostors, 2, 0)[:, self.shares]
        if not (np.isfinite(low) & (high > low)).all():
            raise DataError("impostors must be two rising numbers wherever subsets share a block")

    def to_plain(self) -> dict[str, Any]:
        """Ready for JSON, figures to the last bit; None where a pair of subsets shares no block."""
        table = None
        if self.impostors is not None:
            table = self.impostors.astype(object)
            table[np.isnan(self.impostors)] = None
        return {
            "modalities": list(self.modalities),
            "blocks": [list(block) for block in self.blocks],
            "impostors": None if table is None else table.tolist(),
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Similarity:
        """What `to_plain` gave; raises `KeyError`, `TypeError`, `ValueError` or `DataError` otherwise."""
        modalities, table = tuple(values["modalities"]), values["impostors"]
        if table is not None:
            S = 2 ** len(modalities) - 1
            table = np.array(table, dtype=np.float32).reshape(S, S, 2)
        return cls(modalities, tuple(map(tuple, values["blocks"])), table)

    @cached_property
    def subsets(self) -> tuple[Subset, ...]:
        """All non-empty subsets of the modalities, small ones first; the last one is complete."""
        return tuple(all_subsets(self.modalities))

    @cached_property
    def holds(self) -> Bools:
        """(S, B): whether a sample seen in a subset has a block, that is, all of its modalities."""
        return np.array([[set(block) <= set(subset) for block in self.blocks] for subset in self.subsets])

    @cached_property
    def shares(self) -> Bools:
        """(S, S): whether samples seen in two subsets have a block in common."""
        return np.asarray((self.holds[:, None] & self.holds).any(axis=2))

    def subset_numbers(self, present: ArrayLike | None, rows: int) -> Ints:
        """Which subset each of `rows` samples has, from a mask (rows, M); None = all complete.

        Raises `DataError` for a mask of another shape, or a sample without any modality.
        """
        M = len(self.modalities)
        if present is None:
            return np.full(rows, len(self.subsets) - 1, dtype=np.int64)
        mask = np.asarray(present, dtype=np.bool_)
        if mask.shape != (rows, M):
            raise DataError(f"present must be ({rows}, {M}), one column per modality, not {mask.shape}")
        if not mask.any(axis=1).all():
            raise DataError(f"sample {int((~mask.any(axis=1)).argmax())} has none of the modalities")
        powers = 2 ** np.arange(M)
        bits = presence(self.modalities, self.subsets)
        table = np.zeros(2**M, dtype=np.int64)
        table[bits @ powers] = np.arange(len(bits))
        return table[mask @ powers]

    def prepare(self, features: ArrayLike, present: ArrayLike | None = None) -> Prepared:
        """Features (n, D) of samples that have the modalities `present` (n, M) says; None = all of them.

        Raises `DataError` for a shape that does not fit, or a row with NaN or infinity.
        """
        given = np.asarray(features, dtype=np.float32)
        B = len(self.blocks)
        if given.ndim != 2 or not given.shape[1] or given.shape[1] % B:
            raise DataError(
                f"features must be (samples, a multiple of {B}), not {given.shape}; are they of this kind?"
            )
        finite = np.isfinite(given).all(axis=1)
        if not finite.all():
            raise DataError(f"features: row {int((~finite).argmax())} has NaN or infinity")
        subset = self.subset_numbers(present, len(given))
        blocks = given.reshape(len(given), B, given.shape[1] // B) * self.holds[subset][..., None]
        squares = np.einsum("nbc,nbc->nb", blocks, blocks, dtype=np.float64)
        shared = np.sqrt(np.einsum("nb,sb->ns", squares, self.holds.astype(np.float64)))
        inverse = np.divide(1, shared, out=np.zeros_like(shared), where=shared > 0)
        return Prepared(blocks.reshape(given.shape), subset, inverse.astype(np.float32))

    def scores(self, query: Prepared, gallery: Prepared) -> Floats:
        """Similarities (Q, G) of prepared features; NaN where a pair shares no block."""
        scores: Floats = query.values @ gallery.values.T
        for b in np.unique(gallery.subset):
            columns = _all_or_some(gallery.subset == b)
            for a in np.unique(query.subset):
                rows = _all_or_some(query.subset == a)
                at: Any = rows, columns
                if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
                    at = np.ix_(rows, columns)
                if not self.shares[a, b]:
                    scores[at] = np.nan
                    continue
                part = scores[at]
                part *= query.inverse_norms[rows, b][:, None]
                part *= gallery.inverse_norms[columns, a]
                if self.impostors is not None:
                    low, high = self.impostors[a, b]
                    part -= low
                    part /= high - low
                scores[at] = part
        return scores

    def __call__(
        self,
        query: ArrayLike,
        gallery: ArrayLike,
        query_present: ArrayLike | None = None,
        gallery_present: ArrayLike | None = None,
    ) -> Floats:
        """Similarities (Q, G) of features (Q, D) and (G, D); NaN where a pair shares nothing.

        Args:
            query: Features as `embed` gives them.
            gallery: The same for the gallery.
            query_present: (Q, M), which of the model's modalities each query has; None = all.
            gallery_present: (G, M), the same for the gallery.

        Raises:
            DataError: For shapes that do not fit, or features with NaN.
        """
        return self.scores(self.prepare(query, query_present), self.prepare(gallery, gallery_present))


def presence(modalities: Sequence[str], samples: Sequence[Container[str]]) -> Bools:
    """(n, M): which of the modalities each of n samples has."""
    seen = [[name in sample for name in modalities] for sample in samples]
    return np.array(seen, dtype=np.bool_).reshape(len(samples), len(modalities))


def _all_or_some(mask: Bools) -> slice | Ints:
    """An index of the true entries; a slice where they are all, which copies nothing."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def fit_impostors(similarity: Similarity, samples: Sequence[tuple[Floats, Ints]]) -> Floats | None:
    """Median and 99th percentile (S, S, 2) of the cosine of different identities, per pair of subsets.

    `samples`: for each subset, features (n, D) of samples seen in just that subset, and identities (n,). A
    pair of subsets that no two identities were seen in gets the figures of what it shares, else those of
    the largest subset that has any. None where there are no two identities at all.
    """
    subsets = similarity.subsets
    S = len(subsets)
    plain = Similarity(similarity.modalities, similarity.blocks)
    prepared = []
    for subset, (features, _) in zip(subsets, samples, strict=True):
        present = np.tile([m in subset for m in similarity.modalities], (len(features), 1))
        prepared.append(plain.prepare(features, present) if len(features) else None)
    found = np.full((S, S, 2), np.nan, dtype=np.float32)
    for a, first in enumerate(prepared):
        for b, second in enumerate(prepared[: a + 1]):
            if first is not None and second is not None and similarity.shares[a, b]:
                cosines = plain.scores(first, second)
                found[a, b] = found[b, a] = _quantiles(cosines[samples[a][1][:, None] != samples[b][1]])
    return _filled(found, similarity)


def _quantiles(cosines: Floats) -> tuple[float, float]:
    """Median and 99th percentile; NaN where there are too few different values."""
    if len(cosines) < 2:
        return np.nan, np.nan
    low, high = np.quantile(cosines.astype(np.float64), QUANTILES).astype(np.float32)
    return (float(low), float(high)) if high > low else (np.nan, np.nan)


def _filled(found: Floats, similarity: Similarity) -> Floats | None:
    """The same with figures for every pair of subsets that shares a block."""
    known = np.isfinite(found[..., 0])
    own = np.flatnonzero(np.diag(known))
    if not len(own):
        return None
    number = {subset: n for n, subset in enumerate(similarity.subsets)}
    for a, b in np.argwhere(similarity.shares & ~known):
        first, second = similarity.subsets[a], similarity.subsets[b]
        shared = number[tuple(m for m in first if m in second)]
        source = shared if known[shared, shared] else own[-1]
        found[a, b] = found[source, source]
    return found


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
            "are the weights intact, and was the model trained in this precision?"
        )
