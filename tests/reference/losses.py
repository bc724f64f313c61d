"""The losses of training written as plain loops over samples and pairs, in Python floats."""

from __future__ import annotations

import math

from reference.token_reduction import cosine, softmax

Vector = list[float]
Blocks = list[list[Vector]]


def distance(a: Vector, b: Vector) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def cross_entropy(logits: list[Vector], labels: list[int], smoothing: float = 0.0) -> float:
    """Target of a class: smoothing / classes, and 1 − smoothing more for the right one."""
    total = 0.0
    for scores, label in zip(logits, labels, strict=True):
        for c, p in enumerate(softmax(scores)):
            target = smoothing / len(scores) + (1 - smoothing if c == label else 0.0)
            total -= target * math.log(p)
    return total / len(labels)


def groups(i: int, labels: list[int]) -> tuple[list[int], list[int]]:
    """Positives and negatives of anchor i."""
    positives = [j for j, label in enumerate(labels) if j != i and label == labels[i]]
    return positives, [j for j, label in enumerate(labels) if label != labels[i]]


def mean_over_anchors(labels: list[int], loss) -> float:
    """Mean of loss(anchor, positives, negatives) over the anchors that have both."""
    values = []
    for i in range(len(labels)):
        positives, negatives = groups(i, labels)
        if positives and negatives:
            values.append(loss(i, positives, negatives))
    return sum(values) / len(values) if values else 0.0


def triplet(features: list[Vector], labels: list[int], margin: float | None = None) -> float:
    """Batch-hard triplet with soft margin, or with a given one."""

    def loss(i: int, positives: list[int], negatives: list[int]) -> float:
        farthest = max(distance(features[i], features[j]) for j in positives)
        nearest = min(distance(features[i], features[j]) for j in negatives)
        if margin is None:
            return math.log1p(math.exp(farthest - nearest))
        return max(0.0, farthest - nearest + margin)

    return mean_over_anchors(labels, loss)


def feature_distance(student: Blocks, teacher: Blocks, present: list[list[bool]]) -> float:
    """Mean of 1 − cosine over all blocks that are there."""
    found = []
    for own, other, there in zip(student, teacher, present, strict=True):
        for a, b, counts in zip(own, other, there, strict=True):
            if counts:
                found.append(1 - cosine(a, b))
    return sum(found) / len(found)


def relation_distance(student: Blocks, teacher: Blocks, present: list[list[bool]]) -> float:
    """Mean over pairs of samples of the squared difference of their mean cosines over shared blocks."""
    found = []
    for i, here in enumerate(present):
        for j, there in enumerate(present):
            shared = [s for s in range(len(here)) if here[s] and there[s]]
            if shared:
                own = sum(cosine(student[i][s], student[j][s]) for s in shared) / len(shared)
                other = sum(cosine(teacher[i][s], teacher[j][s]) for s in shared) / len(shared)
                found.append((own - other) ** 2)
    return sum(found) / len(found)
