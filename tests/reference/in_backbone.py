"""Token reduction between blocks as plain loops: one sample, modality by modality, patch by patch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference import merge_dropped as nearest
from reference.token_reduction import Vector, contrasts, cosine, min_max, weighted_sum

Point = tuple[float, float]
Block = Callable[[Tensor, list[Point], list[int]], tuple[Tensor, Vector]]
"""Tokens (T, C) of one image, the points of its patch tokens and how many times each of the T tokens counts as
a key -> tokens, and the class token's attention."""


@dataclass
class Leftover:
    vector: Vector
    point: Point
    mass: float
    """Sum of exp(score) of all patches in it; 0 when none was dropped."""


@dataclass
class Stream:
    """One modality of one sample."""

    front: list[Vector]
    patches: list[Vector]
    origins: list[int]
    points: list[Point]
    sizes: list[int]
    """Patches that each one stands for."""
    leftovers: list[Leftover] = field(default_factory=list)
    attention: Vector = field(default_factory=list)
    choices: list[list[int]] = field(default_factory=list)
    scores: list[dict[int, float]] = field(default_factory=list)

    def tokens(self) -> list[Vector]:
        return [*self.front, *self.patches, *(left.vector for left in self.leftovers)]

    def places(self) -> list[Point]:
        return [*self.points, *(left.point for left in self.leftovers)]

    def counts(self) -> list[int]:
        return [1] * len(self.front) + self.sizes + [1] * len(self.leftovers)


def centres(grid: tuple[int, int]) -> list[Point]:
    h, w = grid
    return [((2 * y + 1) / h - 1, (2 * x + 1) / w - 1) for y in range(h) for x in range(w)]


def stage_scores(name: str, streams: dict[str, Stream], wanted: tuple[str, ...]) -> Vector:
    """Half of the sum of the terms: eq. 3 with beta 0.25 and nothing learned."""
    stream = streams[name]
    others = [other for other in streams if other != name]
    terms = []
    if "self" in wanted:
        terms.append(min_max([cosine(v, stream.front[0]) for v in stream.patches]))
    if "cross" in wanted and others:
        found = [min_max([cosine(v, streams[o].front[0]) for v in stream.patches]) for o in others]
        terms.append([sum(column) / len(others) for column in zip(*found, strict=True)])
    if "attention" in wanted:
        start = len(stream.front)
        terms.append(min_max(stream.attention[start : start + len(stream.patches)]))
    if "contrast" in wanted:
        terms.append(min_max(contrasts(stream.patches)))
    if "cross_contrast" in wanted and others:
        found = []
        for other in others:  # 0 where the other modality does not have the patch any more
            values = min_max(contrasts(streams[other].patches))
            placed = dict(zip(streams[other].origins, values, strict=True))
            found.append([placed.get(origin, 0.0) for origin in stream.origins])
        terms.append([sum(column) / len(others) for column in zip(*found, strict=True)])
    return [0.5 * sum(term[i] for term in terms) for i in range(len(stream.patches))]


def mean_point(points: list[Point], weights: Vector) -> Point:
    return tuple(sum(w * p[a] for w, p in zip(weights, points, strict=True)) / sum(weights) for a in (0, 1))


def fuse(stream: Stream, scores: Vector, kept: list[int]) -> Leftover:
    """The leftover after the patches outside `kept` are dropped."""
    dropped = [i for i in range(len(stream.patches)) if i not in kept]
    weights = [math.exp(scores[i]) for i in dropped]
    mass = sum(weights)
    vector = weighted_sum([w / mass for w in weights], [stream.patches[i] for i in dropped])
    point = mean_point([stream.points[i] for i in dropped], weights)
    if not stream.leftovers:
        return Leftover(vector, point, mass)
    old = stream.leftovers[0]
    share = old.mass / (old.mass + mass)
    vector = weighted_sum([share, 1 - share], [old.vector, vector])
    return Leftover(vector, mean_point([old.point, point], [share, 1 - share]), old.mass + mass)


def merge(stream: Stream, kept: list[int]) -> None:
    """Make each kept patch the mean of itself and the dropped ones nearest to it, by the patches they stand for."""
    groups = nearest.members(nearest.similarity(stream.patches), kept)
    patches, points, sizes = [], [], []
    for group in groups:
        total = sum(stream.sizes[i] for i in group)
        weights = [stream.sizes[i] / total for i in group]
        patches.append(weighted_sum(weights, [stream.patches[i] for i in group]))
        points.append(mean_point([stream.points[i] for i in group], weights))
        sizes.append(total)
    stream.patches, stream.points, stream.sizes = patches, points, sizes
    stream.origins = [stream.origins[i] for i in kept]


def drop(stream: Stream, scores: Vector, kept: list[int], dropped: str) -> None:
    """Leave the patches at `kept` in the stream, and what `dropped` says of the others."""
    if dropped == "merge":
        merge(stream, kept)
        return
    if dropped == "leftover":
        stream.leftovers = [fuse(stream, scores, kept)]
    for name in ("patches", "points", "sizes", "origins"):
        values = getattr(stream, name)
        setattr(stream, name, [values[j] for j in kept])


def reduce(
    images: dict[str, Tensor],
    prefix: int,
    grid: tuple[int, int],
    blocks: list[Block],
    stages: dict[int, float],
    *,
    terms: tuple[str, ...] = ("contrast", "cross_contrast", "attention"),
    dropped: str = "merge",
    redundancy: float = 1.5,
) -> dict[str, Stream]:
    """One sample: embedded tokens (prefix + N, C) per modality through all blocks; `stages`: block -> share."""
    N = grid[0] * grid[1]
    streams = {
        name: Stream(x[:prefix].tolist(), x[prefix:].tolist(), list(range(N)), centres(grid), [1] * N)
        for name, x in images.items()
    }
    for i, block in enumerate(blocks):
        if i in stages:
            count = max(1, math.ceil(N * stages[i]))
            scores = {name: stage_scores(name, streams, terms) for name in streams}
            for name, stream in streams.items():
                n, values = len(stream.patches), scores[name]
                if redundancy and dropped == "merge" and count < n:
                    again = nearest.redundancy(nearest.similarity(stream.patches), values)
                    values = [s - redundancy * r for s, r in zip(values, again, strict=True)]
                kept = sorted(range(n), key=lambda j, s=values: (-s[j], j))[:count]
                stream.scores.append(dict(zip(stream.origins, values, strict=True)))
                stream.choices.append([stream.origins[j] for j in kept])
                if count < n:
                    drop(stream, values, kept, dropped)
        for stream in streams.values():
            x, stream.attention = block(torch.tensor(stream.tokens()), stream.places(), stream.counts())
            rows, n = x.tolist(), len(stream.patches)
            stream.front, stream.patches = rows[:prefix], rows[prefix : prefix + n]
            for left, vector in zip(stream.leftovers, rows[prefix + n :], strict=True):
                left.vector = vector
    return streams
