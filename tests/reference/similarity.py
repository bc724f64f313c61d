"""Similarity of two samples that were seen in different modalities, spelt out with plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def similarity(
    q: Sequence[float],
    g: Sequence[float],
    q_has: set[str],
    g_has: set[str],
    blocks: Sequence[Sequence[str]],
    scale: tuple[float, float] | None = None,
) -> float:
    """Cosine over the blocks whose modalities both have, `scale` = (score 0, score 1); NaN for none."""
    size = len(q) // len(blocks)
    dot = q_square = g_square = 0.0
    shared = 0
    for b, names in enumerate(blocks):
        if not all(name in q_has and name in g_has for name in names):
            continue
        shared += 1
        for x, y in zip(q[b * size : (b + 1) * size], g[b * size : (b + 1) * size], strict=True):
            dot += x * y
            q_square += x * x
            g_square += y * y
    if not shared:
        return math.nan
    cosine = dot / math.sqrt(q_square * g_square) if q_square and g_square else 0.0
    return cosine if scale is None else (cosine - scale[0]) / (scale[1] - scale[0])
