"""Open-set identification, pooling and linkage, spelt out with plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def outcomes(
    scores: Sequence[Sequence[float]],
    query_ids: Sequence[str],
    row_ids: Sequence[str],
) -> list[tuple[float, float]]:
    """Per query the best score of others and of the own identity; NaN where there is none."""
    found = []
    for q, who in enumerate(query_ids):
        own, other = math.nan, math.nan
        for g, name in enumerate(row_ids):
            score = scores[q][g]
            if math.isnan(score):
                continue
            if name == who:
                own = score if math.isnan(own) else max(own, score)
            else:
                other = score if math.isnan(other) else max(other, score)
        found.append((other, own))
    return found


def threshold(scores: Sequence[float], rate: float) -> float | None:
    """The lowest of the scores that few enough others exceed: (exceeding + 1) / (n + 1) ≤ rate."""
    best = None
    for candidate in scores:
        exceeding = sum(score > candidate for score in scores)
        # Those equal to the threshold count as if they came before it: only so many ranks may lie above.
        if (exceeding + 1) / (len(scores) + 1) <= rate + 1e-12 and (best is None or candidate < best):
            best = candidate
    return best


def pool(
    shots: Sequence[Sequence[float]],
    has: Sequence[set[str]],
    quality: Sequence[float],
    blocks: Sequence[Sequence[str]],
) -> list[list[float] | None]:
    """Weighted mean of each block over the shots that have it, every shot with blocks of length 1 on average."""
    size = len(shots[0]) // len(blocks)
    if not any(quality):
        quality = [1.0] * len(shots)
    sums = [[0.0] * size for _ in blocks]
    weights = [0.0] * len(blocks)
    for shot, names, weight in zip(shots, has, quality, strict=True):
        held = [b for b, block in enumerate(blocks) if all(name in names for name in block)]
        square = sum(shot[b * size + c] ** 2 for b in held for c in range(size))
        unit = math.sqrt(len(held) / square) if square else 0.0
        for b in held:
            weights[b] += weight
            for c in range(size):
                sums[b][c] += weight * unit * shot[b * size + c]
    return [
        [value / weight for value in block] if weight else None
        for block, weight in zip(sums, weights, strict=True)
    ]


def average_linkage(scores: Sequence[Sequence[float]], threshold: float) -> list[set[int]]:
    """Join the two clusters that are most alike on average, while that is at least the threshold."""
    clusters = [{i} for i in range(len(scores))]
    while len(clusters) > 1:
        best, pair = -math.inf, (0, 0)
        for a in range(len(clusters)):
            for b in range(a):
                values = [scores[i][j] for i in clusters[a] for j in clusters[b]]
                above = math.fsum(0 if math.isnan(v) else v - threshold for v in values) / len(values)
                if above > best:
                    best, pair = above, (a, b)
        if best <= 0:
            break
        clusters[pair[1]] |= clusters.pop(pair[0])
    return clusters
