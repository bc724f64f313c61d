"""Slimming between blocks written as plain loops: one sample, modality by modality, patch by patch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from reference import joining
from reference.joining import normed
from reference.slimming import Vector, contrasts, cosine, learned_score, min_max, weighted_sum

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


def stage_scores(
    name: str,
    streams: dict[str, Stream],
    sources: tuple[str, ...],
    predictor: nn.Sequential | None,
    beta: float,
) -> Vector:
    stream = streams[name]
    n = len(stream.patches)
    totals = [0.0] * n
    if "learned" in sources:
        assert predictor is not None
        for i in range(n):
            totals[i] += (1 - 2 * beta) * learned_score(predictor, normed(stream.patches[i]))
    if "own" in sources:
        own = min_max([cosine(v, stream.front[0]) for v in stream.patches])
        for i in range(n):
            totals[i] += 2 * beta * own[i]
    others = [other for other in streams if other != name]
    if "others" in sources and others:
        for other in others:
            alike = min_max([cosine(v, streams[other].front[0]) for v in stream.patches])
            for i in range(n):
                totals[i] += 2 * beta * alike[i] / len(others)
    if "attention" in sources:
        start = len(stream.front)
        seen = min_max(stream.attention[start : start + n])
        for i in range(n):
            totals[i] += 2 * beta * seen[i]
    terms = []
    if "contrast" in sources:
        terms.append(min_max(contrasts(stream.patches)))
    if "others_contrast" in sources and others:
        found = []
        for other in others:  # 0 where the other modality does not have the patch any more
            values = min_max(contrasts(streams[other].patches))
            placed = dict(zip(streams[other].origins, values, strict=True))
            found.append([placed.get(origin, 0.0) for origin in stream.origins])
        terms.append([sum(column) / len(others) for column in zip(*found, strict=True)])
    return [total + 2 * beta * sum(term[i] for term in terms) for i, total in enumerate(totals)]


def region(point: Point, regions: tuple[int, int]) -> int:
    row, column = (min(int((c + 1) / 2 * g), g - 1) for c, g in zip(point, regions, strict=True))
    return row * regions[1] + column


def mean_point(points: list[Point], weights: Vector) -> Point:
    return tuple(sum(w * p[a] for w, p in zip(weights, points, strict=True)) / sum(weights) for a in (0, 1))


def fuse(stream: Stream, scores: Vector, kept: list[int], regions: tuple[int, int]) -> list[Leftover]:
    """The leftover of each region after the patches outside `kept` are dropped."""
    found = []
    everywhere = list(range(len(stream.patches)))
    for r in range(regions[0] * regions[1]):
        members = [i for i in everywhere if region(stream.points[i], regions) == r]
        dropped = [i for i in members if i not in kept]
        old = stream.leftovers[r] if stream.leftovers else None
        chosen = dropped or members or everywhere
        weights = [math.exp(scores[i]) if dropped else 1.0 for i in chosen]
        vector = weighted_sum([w / sum(weights) for w in weights], [stream.patches[i] for i in chosen])
        point = mean_point([stream.points[i] for i in chosen], weights)
        mass = sum(weights) if dropped else 0.0
        if old is not None:
            both = old.mass + mass
            share = old.mass / both if both else 0.5
            vector = weighted_sum([share, 1 - share], [old.vector, vector])
            point = mean_point([old.point, point], [share, 1 - share])
            mass = both
        found.append(Leftover(vector, point, mass))
    return found


def join(stream: Stream, kept: list[int]) -> None:
    """Make each kept patch the mean of itself and what joins it, over all patches that they stand for."""
    groups = joining.members(joining.likeness(stream.patches), kept)
    patches, points, sizes = [], [], []
    for group in groups:
        total = sum(stream.sizes[i] for i in group)
        weights = [stream.sizes[i] / total for i in group]
        patches.append(weighted_sum(weights, [stream.patches[i] for i in group]))
        points.append(mean_point([stream.points[i] for i in group], weights))
        sizes.append(total)
    stream.patches, stream.points, stream.sizes = patches, points, sizes
    stream.origins = [stream.origins[i] for i in kept]


def drop(stream: Stream, scores: Vector, kept: list[int], leftover: str, regions: tuple[int, int]) -> None:
    """Leave the patches at `kept` in the stream, and what `leftover` makes of the others."""
    if leftover == "nearest":
        join(stream, kept)
        return
    if leftover != "none":
        stream.leftovers = fuse(stream, scores, kept, (1, 1) if leftover == "single" else regions)
    for name in ("patches", "points", "sizes", "origins"):
        values = getattr(stream, name)
        setattr(stream, name, [values[j] for j in kept])


def slim(
    images: dict[str, Tensor],
    prefix: int,
    grid: tuple[int, int],
    blocks: list[Block],
    stages: dict[int, float],
    predictors: Callable[[int, str], nn.Sequential | None],
    *,
    sources: tuple[str, ...] = ("learned", "own", "others"),
    beta: float = 0.25,
    leftover: str = "single",
    regions: tuple[int, int] = (2, 2),
    redundancy: float = 0.0,
) -> dict[str, Stream]:
    """One sample: embedded tokens (prefix + N, C) per modality through all blocks; `stages`: block -> share."""
    N = grid[0] * grid[1]
    streams = {
        name: Stream(x[:prefix].tolist(), x[prefix:].tolist(), list(range(N)), centres(grid), [1] * N)
        for name, x in images.items()
    }
    number = 0
    for i, block in enumerate(blocks):
        if i in stages:
            count = max(1, math.ceil(N * stages[i]))
            scores = {
                name: stage_scores(name, streams, sources, predictors(number, name), beta) for name in streams
            }
            for name, stream in streams.items():
                n, values = len(stream.patches), scores[name]
                if redundancy and count < n:
                    again = joining.redundancy(joining.likeness(stream.patches), values)
                    values = [s - redundancy * r for s, r in zip(values, again, strict=True)]
                kept = sorted(range(n), key=lambda j, s=values: (-s[j], j))[:count]
                stream.scores.append(dict(zip(stream.origins, values, strict=True)))
                stream.choices.append([stream.origins[j] for j in kept])
                if count < n:
                    drop(stream, values, kept, leftover, regions)
            number += 1
        for stream in streams.values():
            x, stream.attention = block(torch.tensor(stream.tokens()), stream.places(), stream.counts())
            rows, n = x.tolist(), len(stream.patches)
            stream.front, stream.patches = rows[:prefix], rows[prefix : prefix + n]
            for left, vector in zip(stream.leftovers, rows[prefix + n :], strict=True):
                left.vector = vector
    return streams
