"""Merging dropped patches into the nearest kept ones, as plain loops over the patches of one image."""

from __future__ import annotations

import math

from reference.token_reduction import Vector, cosine


def normed(v: Vector) -> Vector:
    mean = sum(v) / len(v)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in v) / len(v) + 1e-5)
    return [(x - mean) / deviation for x in v]


def similarity(patches: list[Vector]) -> list[Vector]:
    """Cosine of each patch to each, after the mean of the normalised patches is taken off."""
    rows = [normed(v) for v in patches]
    mean = [sum(row[c] for row in rows) / len(rows) for c in range(len(rows[0]))]
    rows = [[x - m for x, m in zip(row, mean, strict=True)] for row in rows]
    return [[cosine(a, b) for b in rows] for a in rows]


def redundancy(alike: list[Vector], scores: Vector) -> Vector:
    """The largest similarity of each patch to one before it in the order of the scores, at least 0."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    found = [0.0] * len(scores)
    for place, i in enumerate(order):
        for j in order[:place]:
            found[i] = max(found[i], alike[i][j])
    return found


def members(alike: list[Vector], kept: list[int]) -> list[list[int]]:
    """For each kept patch, in their order: itself and the dropped ones that are nearest to it."""
    groups = [[i] for i in kept]
    for j in range(len(alike)):
        if j not in kept:
            best = 0
            for place, i in enumerate(kept):
                if alike[j][i] > alike[j][kept[best]]:
                    best = place
            groups[best].append(j)
    return groups
