"""A quarter of the bytes: features as whole numbers of 8 bits find the rows that can be among the best.

A feature g is kept as numbers c from −127 to 127 with a scale s, a query q alike as d with t, so that
q·g ≈ s·t·(d·c). What rounding leaves out of a number is at most s / 2, evenly spread, so the sum over a
feature has a standard deviation of s·|q| / √12 for the row and t·|g| / √12 for the query. Every row that
comes within `DEVIATIONS` of these of the k best is compared in float32: the answer is that of an exact
search, with an error that would be seen once in 10¹⁴ pairs; up to 64 dimensions it cannot occur at all.
Products of 8-bit numbers are those of NumKong, which uses what the processor has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimreid.amx import amx_works
from slimreid.arrays import Bools, Floats, Ints
from slimreid.inference.similarity import Prepared, Similarity

try:
    import numkong  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:  # an optional dependency; numpy compares float32 then
    numkong = None  # type: ignore[assignment, unused-ignore]

PIECE, SCORES = 32_768, 131_072
"""Rows compared at once: at least so many, and as many as make so many scores."""
FIRST = 8192
"""The same, for the first comparison."""
DEVIATIONS = 8
SPREAD = DEVIATIONS / math.sqrt(12)
"""By which a product may be off, in units of scale times length."""
ROUNDING = 1e-5
"""More than float32 loses in these products."""

AMX = ("sapphireamx", "graniteamx")
TRIAL = "import numkong as k, numpy as np; x = np.ones((64, 256), np.int8); k.dots_packed(x, k.dots_pack(x))"

Codes = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Quantised:
    """Features (n, D) in 8 bits."""

    codes: Codes
    scales: Floats
    """(n,)."""

    def __len__(self) -> int:
        return len(self.codes)


def is_available() -> bool:
    """Whether products of 8-bit numbers can be computed fast."""
    return numkong is not None


def quantise(values: Floats) -> Quantised:
    """Features (n, D) in 8 bits; rows of zeros stay zeros."""
    scales = (np.abs(values).max(axis=1, initial=0) / 127).astype(np.float32)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    codes = np.rint(values * inverse[:, None]).astype(np.int8)
    return Quantised(codes, scales)


@dataclass(frozen=True, eq=False)
class RowScale:
    """score = dot · weight · (the query's 1 / norm) + offset, for queries of one subset."""

    offset: Floats
    """(n,)."""
    numbers: Floats
    """(n,): the weight, times the scale of the codes."""
    most: float
    """Largest of `numbers`."""
    least: float
    """Smallest of `numbers`."""
    several: bool
    """Whether rows are of several subsets."""
    row_error: float
    """What a score may be off because rows are rounded, per length of the query."""
    query_error: float
    """What a score may be off because the query is rounded, per scale of its numbers."""


def row_scale(similarity: Similarity, subset: int, rows: Prepared, quantised: Quantised) -> RowScale:
    """How dot products of queries of a subset with rows become scores."""
    S = len(similarity.subsets)
    low, width = np.zeros(S, dtype=np.float32), np.ones(S, dtype=np.float32)
    if similarity.impostors is not None:
        shared = similarity.shares[subset]
        low = np.where(shared, similarity.impostors[subset, :, 0], 0)
        width = np.where(shared, similarity.impostors[subset, :, 1] - low, 1)
    weight = rows.inverse_norms[:, subset] / width[rows.subset]
    offset = -(low / width)[rows.subset]
    whole = rows.inverse_norms[:, -1]  # against the complete subset a row shares all it has
    norms = np.divide(1, whole, out=np.zeros_like(whole), where=whole > 0)
    row_error = SPREAD * float((quantised.scales * weight).max(initial=0))
    query_error = SPREAD * float((norms * weight).max(initial=0))
    numbers = (weight * quantised.scales).astype(np.float32)
    return RowScale(
        offset.astype(np.float32),
        numbers,
        float(numbers.max(initial=0)),
        float(numbers.min(initial=np.inf)),
        bool((rows.subset != rows.subset[:1]).any()),
        row_error,
        query_error,
    )


@dataclass(frozen=True, eq=False)
class Candidates:
    """Pairs of a query and a row, and what the row's score may be."""

    query: Ints
    """(c,) numbers of queries, ascending."""
    place: Ints
    """(c,) places of rows."""
    score: Floats
    """(c,) as 8 bits tell it."""
    error: Floats
    """(Q,): how far the scores of each query may be off."""

    def best(self, k: int) -> Ints:
        """The places of the k best of each query, as 8 bits tell it, each once."""
        order = np.lexsort((-self.score, self.query))
        starts = np.searchsorted(self.query, np.arange(len(self.error)))
        rank = np.arange(len(order)) - starts[self.query[order]]
        return np.unique(self.place[order[rank < k]])

    def above(self, limit: Floats) -> Ints:
        """The places whose score can be at least the limit (Q,) of the query, each once."""
        return np.unique(self.place[self.score >= (limit - self.error)[self.query]])


def find_candidates(
    query: Prepared, k: int, quantised: Quantised, scale: RowScale, rows: Prepared, allowed: Bools
) -> Candidates:
    """All rows that can be among the k best of queries of one subset; `allowed` (n,): rows that count."""
    small = quantise(query.values)
    lengths = np.linalg.norm(query.values, axis=1)
    factors = query.inverse_norms  # (Q, S): by the subset of the row
    error = factors.max(axis=1) * (lengths * scale.row_error + small.scales * scale.query_error)
    search = _Search(k, (error * (1 + ROUNDING) + ROUNDING).astype(np.float32))
    every = np.count_nonzero(allowed) == len(allowed)
    product = _product(small.codes)
    for some in _pieces(len(quantised), max(PIECE, SCORES // len(query))):
        numbers = product(quantised.codes[some])
        weight, offset = scale.numbers[some], scale.offset[some]
        counted = None if every else allowed[some]
        if scale.several or some.start == 0:
            of_query = factors[:, rows.subset[some]].T * small.scales
            search.add(numbers * (weight[:, None] * of_query) + offset[:, None], some.start, counted)
        else:
            of_query = factors[:, rows.subset[0]] * small.scales
            search.add_numbers(numbers, some.start, scale, of_query, counted)
    return search.result()


def _pieces(rows: int, size: int) -> Iterator[slice]:
    """All rows in pieces; a small one first, which tells how good the best are."""
    start = 0
    while start < rows:
        end = start + (FIRST if start == 0 else size)
        yield slice(start, min(end, rows))
        start = end


def _product(queries: Codes) -> Callable[[Codes], NDArray[Any]]:
    """A function of codes (m, D) that gives their products (m, Q) with the queries."""
    _guard_amx()
    if len(queries) == 1:
        return lambda codes: np.asarray(numkong.cdist(queries, codes, "dot")).reshape(-1, 1)
    packed = numkong.dots_pack(queries)
    return lambda codes: np.asarray(numkong.dots_packed(codes, packed))


@cache
def _guard_amx() -> None:
    """Keep NumKong from AMX where the CPU announces it but faults on it."""
    announced = numkong.get_capabilities()
    found = [name for name in AMX if announced.get(name)]
    if found and not amx_works(f"numkong {version('numkong')}", TRIAL):
        for name in found:
            numkong.disable_capability(name)


def _true(passed: Bools, counted: Bools | None) -> tuple[Ints, Ints]:
    """Row and column of the true entries (m, Q); rows that do not count (m,) are left out."""
    places, queries = np.divmod(np.flatnonzero(passed), passed.shape[1])
    if counted is None:
        return places, queries
    left = counted[places]
    return places[left], queries[left]


class _Search:
    """Rows whose score, less the error, may be among the k best; limits rise as rows come."""

    def __init__(self, k: int, error: Floats) -> None:
        self.k, self.error = k, error
        self.limit = np.full(len(error), -np.inf, dtype=np.float32)
        """(Q,): rows that 8 bits put below it are not among the best."""
        self._parts: list[tuple[Ints, Ints, Floats]] = []
        self._count = 0

    def add_numbers(
        self,
        numbers: NDArray[Any],
        start: int,
        scale: RowScale,
        of_query: Floats,
        counted: Bools | None,
    ) -> None:
        """Products (m, Q) of codes of rows that have one subset; `of_query` (Q,): what makes them scores."""
        # In whole numbers first: few pass, and only these are made scores.
        offset = scale.offset[0]
        gap = self.limit - offset
        edge = np.where(gap > 0, scale.most, scale.least) * of_query
        least = np.divide(gap, edge, out=np.full_like(gap, -np.inf), where=edge > 0)
        passed = numbers >= np.maximum(np.floor(least), -(2.0**30)).astype(numbers.dtype)
        places, queries = _true(passed, counted)
        weight = scale.numbers[places + start]
        scores = numbers[places, queries].astype(np.float32) * weight * of_query[queries] + offset
        self._keep(queries, places + start, scores)

    def add(self, scores: Floats, start: int, counted: Bools | None) -> None:
        """Scores (m, Q)."""
        if counted is not None:
            scores[~counted] = -np.inf
        if start == 0 and len(scores) >= self.k:
            # What most rows lie below is told without putting them in order.
            best = np.partition(scores, len(scores) - self.k, axis=0)[len(scores) - self.k]
            self.limit = (best - 2 * self.error).astype(np.float32)
        passed = scores >= self.limit
        places, queries = _true(passed, counted)
        self._keep(queries, places + start, scores[places, queries].astype(np.float32))

    def _keep(self, queries: Ints, places: Ints, scores: Floats) -> None:
        better = scores >= self.limit[queries]
        self._parts.append((queries[better], places[better], scores[better]))
        self._count += int(better.sum())
        if self._count > 4 * self.k * len(self.limit):
            self._raise_limits()

    def _raise_limits(self) -> None:
        queries, places, scores = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.lexsort((-scores, queries))
        queries, places, scores = queries[order], places[order], scores[order]
        starts = np.searchsorted(queries, np.arange(len(self.limit) + 1))
        full = np.flatnonzero(np.diff(starts) >= self.k)
        worst = scores[starts[full] + self.k - 1] - 2 * self.error[full]
        self.limit[full] = np.maximum(self.limit[full], worst)
        left = scores >= self.limit[queries]
        self._parts = [(queries[left], places[left], scores[left])]
        self._count = int(left.sum())

    def result(self) -> Candidates:
        """What is left in the end."""
        self._raise_limits()
        return Candidates(*self._parts[0], self.error)
