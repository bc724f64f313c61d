"""The best rows of a gallery by a plain loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slimreid.inference.similarity import Similarity


def best(
    similarity: Similarity,
    query: np.ndarray,
    query_names: Sequence[str],
    rows: Sequence[tuple[int, np.ndarray, Sequence[str]]],
    k: int,
) -> list[tuple[int, float]]:
    """(id, score) of the k best of rows (id, feature, modalities), best first; pairs that share nothing are out."""
    found = []
    for number, feature, names in rows:
        score = _score(similarity, query, query_names, feature, names)
        if score is not None:
            found.append((number, score))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


def _score(similarity, first, first_names, second, second_names):
    width = len(first) // len(similarity.blocks)
    dot = length_1 = length_2 = 0.0
    shared = False
    for b, block in enumerate(similarity.blocks):
        if not (set(block) <= set(first_names) and set(block) <= set(second_names)):
            continue
        shared = True
        for i in range(b * width, (b + 1) * width):
            dot += float(first[i]) * float(second[i])
            length_1 += float(first[i]) ** 2
            length_2 += float(second[i]) ** 2
    if not shared:
        return None
    cosine = dot / np.sqrt(length_1 * length_2)
    if similarity.impostors is None:
        return cosine
    a, b = (
        similarity.subsets.index(tuple(n for n in similarity.modalities if n in names))
        for names in (first_names, second_names)
    )
    low, high = similarity.impostors[a, b].astype(float)
    return (cosine - low) / (high - low)
