"""Token merging by bipartite matching, one image at a time, one pair after the other."""

from __future__ import annotations

import math

from reference.token_reduction import cosine

Vector = list[float]


def merge_image(
    tokens: list[Vector], metric: list[Vector], sizes: list[float], r: int
) -> tuple[list[Vector], list[float]]:
    """Join the r best pairs: tokens at even places propose, those at odd places are joined.

    What stays comes in the order of the even places, then all odd ones.
    """
    even, odd = range(0, len(tokens), 2), range(1, len(tokens), 2)
    proposals = []
    for i in even:
        similar = [cosine(metric[i], metric[j]) for j in odd]
        best = max(range(len(similar)), key=lambda k: (similar[k], -k))
        proposals.append((-similar[best], i, odd[best]))
    proposals.sort()
    joined = {j: [(tokens[j], sizes[j])] for j in odd}
    gone = set()
    for _, i, j in proposals[: min(r, len(odd))]:
        joined[j].append((tokens[i], sizes[i]))
        gone.add(i)
    stay = [(tokens[i], sizes[i]) for i in even if i not in gone]
    for members in joined.values():
        size = sum(s for _, s in members)
        mean = [sum(t[c] * s for t, s in members) / size for c in range(len(tokens[0]))]
        stay.append((mean, size))
    return [t for t, _ in stay], [s for _, s in stay]


def weighted_attention(
    queries: list[Vector], keys: list[Vector], values: list[Vector], sizes: list[float]
) -> list[Vector]:
    """One head: every key counts as often as it has patches."""
    out = []
    for q in queries:
        dots = (sum(a * b for a, b in zip(q, k, strict=True)) for k in keys)
        logits = [dot / math.sqrt(len(q)) for dot in dots]
        powers = [s * math.exp(x) for s, x in zip(sizes, logits, strict=True)]
        total = sum(powers)
        mixed = [0.0] * len(values[0])
        for p, v in zip(powers, values, strict=True):
            mixed = [m + p / total * x for m, x in zip(mixed, v, strict=True)]
        out.append(mixed)
    return out
