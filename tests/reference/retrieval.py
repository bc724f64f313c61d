"""Retrieval figures spelt out with plain loops, and re-ranking as its authors published it, dense."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def is_ignored(q: int, g: int, labels: dict[str, list[int]], protocol: str) -> bool:
    if labels["query_ids"][q] != labels["gallery_ids"][g]:
        return False
    place = {"camera": "cameras", "scene": "scenes", "none": "index"}[protocol]
    if f"query_{place}" not in labels:
        return False
    return labels[f"query_{place}"][q] == labels[f"gallery_{place}"][g]


def rank_gallery(scores: list[float], ignored: list[bool]) -> list[int]:
    """Gallery indices, highest score first, the lower index first among equal scores."""
    left = [g for g in range(len(scores)) if not ignored[g]]
    ranked: list[int] = []
    while left:
        best = left[0]
        for g in left:
            if scores[g] > scores[best]:
                best = g
        ranked.append(best)
        left.remove(best)
    return ranked


def cosine(a: list[float], b: list[float]) -> float:
    norm_a, norm_b = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(y * y for y in b))
    if norm_a == 0 or norm_b == 0:
        return 0.0
    return sum(x * y for x, y in zip(a, b, strict=True)) / (norm_a * norm_b)


def minus_squared_distance(a: list[float], b: list[float]) -> float:
    return -sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def evaluate(
    scores: list[list[float]], labels: dict[str, list[int]], protocol: str, max_rank: int
) -> dict[str, list[float]]:
    """Average precision, inverse penalty, first hit per query (NaN, NaN, 0 if skipped), CMC, ranked items."""
    out: dict[str, list] = {"ap": [], "inp": [], "first": [], "ranked": []}
    for q, row in enumerate(scores):
        ignored = [is_ignored(q, g, labels, protocol) for g in range(len(row))]
        ranked = rank_gallery(row, ignored)
        hits, precisions, last, first = 0, [], 0, 0
        for position, g in enumerate(ranked):
            if labels["gallery_ids"][g] == labels["query_ids"][q]:
                hits += 1
                precisions.append(hits / (position + 1))
                last = position + 1
                first = first or position + 1
        out["ap"].append(sum(precisions) / hits if hits else math.nan)
        out["inp"].append(hits / last if hits else math.nan)
        out["first"].append(first)
        out["ranked"].append(ranked)
    valid = [f for f in out["first"] if f > 0]
    out["cmc"] = [sum(f <= k for f in valid) / len(valid) if valid else 0.0 for k in range(1, max_rank + 1)]
    return out


def dense_k_reciprocal(
    query: NDArray[np.floating], gallery: NDArray[np.floating], k1: int = 20, k2: int = 6, weight: float = 0.3
) -> NDArray[np.floating]:
    """The published algorithm on the whole matrix of normalised features: distances (Q, G)."""
    Q = len(query)
    features = np.concatenate([query, gallery])
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    N = len(features)
    original = np.maximum(2 - 2 * features @ features.T, 0)
    original = np.transpose(original / np.max(original, axis=0))
    V = np.zeros_like(original)
    rank = np.argsort(original, axis=1)

    def reciprocal(i: int, k: int) -> NDArray[np.int64]:
        forward = rank[i, : k + 1]
        backward = rank[forward, : k + 1]
        return forward[np.where(backward == i)[0]]

    for i in range(N):
        neighbours = reciprocal(i, k1)
        expanded = neighbours
        for candidate in neighbours:
            others = reciprocal(candidate, int(np.around(k1 / 2)))
            if len(np.intersect1d(others, neighbours)) > 2.0 / 3 * len(others):
                expanded = np.append(expanded, others)
        expanded = np.unique(expanded)
        weights = np.exp(-original[i, expanded])
        V[i, expanded] = weights / np.sum(weights)
    original = original[:Q]
    if k2 != 1:
        averaged = np.zeros_like(V)
        for i in range(N):
            averaged[i] = np.mean(V[rank[i, :k2]], axis=0)
        V = averaged
    inverted = [np.where(V[:, i] != 0)[0] for i in range(N)]
    jaccard = np.zeros_like(original)
    for i in range(Q):
        shared = np.zeros(N, dtype=V.dtype)
        for j in np.where(V[i] != 0)[0]:
            shared[inverted[j]] += np.minimum(V[i, j], V[inverted[j], j])
        jaccard[i] = 1 - shared / (2 - shared)
    return (jaccard * (1 - weight) + original * weight)[:, Q:]
