"""Token reduction as plain loops over samples, patches and channels, in Python floats."""

from __future__ import annotations

import math

from torch import Tensor, nn

Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    lengths = math.sqrt(dot(a, a)) * math.sqrt(dot(b, b))
    return dot(a, b) / lengths if lengths > 0 else 0.0


def min_max(values: Vector) -> Vector:
    low, high = min(values), max(values)
    return [(value - low) / (high - low + 1e-8) for value in values]


def softmax(values: Vector) -> Vector:
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def linear(layer: nn.Linear, x: Vector) -> Vector:
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [dot(row, x) + offset for row, offset in zip(weight, bias, strict=True)]


def layer_norm(layer: nn.LayerNorm, x: Vector) -> Vector:
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + 1e-5)
    gain, bias = layer.weight.tolist(), layer.bias.tolist()
    return [(value - mean) / deviation * g + b for value, g, b in zip(x, gain, bias, strict=True)]


def learned_score(mlp: nn.Sequential, patch: Vector) -> float:
    hidden = [gelu(value) for value in linear(mlp[0], patch)]
    return 1 / (1 + math.exp(-linear(mlp[2], hidden)[0]))


def score(learned: Vector | None, own: Vector, guides: list[Vector], beta: float) -> Vector:
    """Eq. 3 for the guides that are present; all already in [0, 1]."""
    totals = []
    for i in range(len(own)):
        total = 2 * beta * own[i]
        if learned is not None:
            total += (1 - 2 * beta) * learned[i]
        if guides:
            total += 2 * beta * sum(guide[i] for guide in guides) / len(guides)
        totals.append(total)
    return totals


def top(scores: Vector, keep_ratio: float) -> list[int]:
    count = max(1, math.ceil(len(scores) * keep_ratio))
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


def weighted_sum(weights: Vector, patches: list[Vector]) -> Vector:
    channels = range(len(patches[0]))
    return [sum(w * patch[c] for w, patch in zip(weights, patches, strict=True)) for c in channels]


def leftover(patches: list[Vector], scores: Vector, kept: list[int]) -> Vector | None:
    dropped = [i for i in range(len(patches)) if i not in kept]
    if not dropped:
        return None
    return weighted_sum(softmax([scores[i] for i in dropped]), [patches[i] for i in dropped])


def merge(network: nn.Sequential, scale: float, kept: list[Vector]) -> list[Vector]:
    logits = []
    for patch in kept:
        hidden = [gelu(value) for value in linear(network[1], layer_norm(network[0], patch))]
        logits.append(linear(network[3], hidden))
    return [
        weighted_sum(softmax([scale * row[token] for row in logits]), kept) for token in range(len(logits[0]))
    ]


def reduce_stream(
    patches: Tensor,
    own: Tensor,
    guides: list[Tensor],
    *,
    predictor: nn.Sequential | None,
    network: nn.Sequential,
    scale: float,
    keep_ratio: float = 0.5,
    beta: float = 0.25,
    similarity: str = "cosine",
) -> tuple[list[Vector], list[int], list[Vector], Vector | None]:
    """One sample: patches (N, C), vectors (C,) -> merged tokens, kept positions, kept patches, leftover."""
    rows = patches.tolist()

    def alike(vector: Tensor) -> Vector:
        e = vector.tolist()
        values = [cosine(v, e) if similarity == "cosine" else dot(v, e) / len(e) for v in rows]
        return min_max(values)

    learned = None if predictor is None else [learned_score(predictor, v) for v in rows]
    scores = score(learned, alike(own), [alike(g) for g in guides], beta)
    kept = top(scores, keep_ratio)
    chosen = [rows[i] for i in kept]
    return merge(network, scale, chosen), kept, chosen, leftover(rows, scores, kept)


def soft_topk(scores: Vector, k: int, tau: float) -> Vector:
    """Sigmoids with a common threshold found by halving an interval that surely holds it."""
    low, high = min(scores) - 50 * tau, max(scores) + 50 * tau
    for _ in range(200):
        middle = (low + high) / 2
        if sum(1 / (1 + math.exp(-(s - middle) / tau)) for s in scores) > k:
            low = middle
        else:
            high = middle
    return [1 / (1 + math.exp(-(s - low) / tau)) for s in scores]


def contrasts(patches: list[Vector]) -> Vector:
    """Length of each patch minus the mean patch."""
    n = len(patches)
    mean = [sum(patch[c] for patch in patches) / n for c in range(len(patches[0]))]
    return [math.sqrt(sum((x - m) ** 2 for x, m in zip(v, mean, strict=True))) for v in patches]


def score_of(
    name: str,
    patches: dict[str, list[Vector]],
    vectors: dict[str, Vector],
    wanted: tuple[str, ...],
    *,
    predictor: nn.Sequential | None = None,
    attention: Vector | None = None,
    beta: float = 0.25,
) -> Vector:
    """The score of one modality of one sample from any terms; `patches` and `vectors` of those present."""
    own, others = patches[name], [other for other in patches if other != name]

    def alike(vector: Vector) -> Vector:
        return min_max([cosine(v, vector) for v in own])

    terms = []
    if "self" in wanted:
        terms.append(alike(vectors[name]))
    if "attention" in wanted:
        terms.append(min_max(attention))
    if "contrast" in wanted:
        terms.append(min_max(contrasts(own)))
    for term, values in (
        ("cross", lambda o: alike(vectors[o])),
        ("cross_contrast", lambda o: min_max(contrasts(patches[o]))),
    ):
        if term in wanted and others:
            found = [values(o) for o in others]
            terms.append([sum(column) / len(others) for column in zip(*found, strict=True)])
    totals = [2 * beta * sum(term[i] for term in terms) for i in range(len(own))]
    if "learned" in wanted:
        totals = [t + (1 - 2 * beta) * learned_score(predictor, v) for t, v in zip(totals, own, strict=True)]
    return totals


def keep_by_threshold(logits: Vector, noise: Vector, most: int) -> list[int]:
    """Patches whose noisy logit is over 0, the highest first, at most `most` and at least one."""
    noisy = [a + b for a, b in zip(logits, noise, strict=True)]
    order = sorted(range(len(noisy)), key=lambda i: (-noisy[i], i))[:most]
    return [order[0]] + [i for i in order[1:] if noisy[i] > 0]
