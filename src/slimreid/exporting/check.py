"""How an exported model compares with the model it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slimreid.arrays import Ints
from slimreid.config.model import BOTH
from slimreid.data.sample_reader import by_subset
from slimreid.errors import DataError
from slimreid.evaluation.metrics.result import PairedDifference, RetrievalResult, paired_bootstrap
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.exporting.agreement import LEAST_COSINE, Agreement, Runner
from slimreid.exporting.samples import CheckSamples
from slimreid.inference.similarity import Subset
from slimreid.inference.trained_model import TrainedModel
from slimreid.progress import progress

_CHUNK = 32


@dataclass(frozen=True)
class Accuracy:
    """Retrieval by the original and by the exported model, on the same samples."""

    feature: str
    queries: int
    gallery: int
    map: tuple[float, float]
    """mAP of the original and of the exported model, 0 to 1."""
    rank1: tuple[float, float]
    difference: PairedDifference | None
    """mAP gained, with its interval over identities; None where there are fewer than two."""
    whole: bool = True
    """Whether these are all samples, not some drawn from more."""

    @property
    def loss(self) -> float:
        """Points of mAP that the exported model loses."""
        return 100 * (self.map[0] - self.map[1])

    @property
    def most_loss(self) -> float:
        """Points of mAP that the exported model loses on all samples, as far as these tell.

        Of a part of them it is the far end of the interval: another draw may lose as much.
        """
        return self.loss if self.whole or self.difference is None else -100 * self.difference.low


@dataclass(frozen=True)
class Check:
    """All figures of the check."""

    source: str
    """What samples it was made on."""
    agreements: tuple[Agreement, ...]
    accuracy: Accuracy | None
    """None where the samples have no labels."""

    @property
    def cosine(self) -> float:
        """The smallest cosine of all."""
        return min(each.cosine for each in self.agreements)

    @property
    def kept(self) -> tuple[float, ...]:
        """Share of kept patches that both keep, per stage, in the subset where it is smallest."""
        return tuple(min(shares) for shares in zip(*(each.kept for each in self.agreements), strict=True))

    def faults(self, precision: str, max_loss: float) -> list[str]:
        """Why the exported model must not be used; empty if it may be."""
        found = []
        least = LEAST_COSINE if precision == "float32" else 0.0
        if self.cosine < least:
            found.append(
                f"features differ from those of the model: cosine {self.cosine:.6f}, "
                f"and {precision} must reach {least}"
            )
        accuracy = self.accuracy
        if accuracy is not None and accuracy.most_loss > max_loss:
            drawn = "" if accuracy.whole else f" (up to {accuracy.most_loss:.2f}: not all samples were seen)"
            found.append(
                f"mAP falls by {accuracy.loss:.2f} points{drawn}, from {100 * accuracy.map[0]:.2f} to "
                f"{100 * accuracy.map[1]:.2f}, and --max-loss is {max_loss:g}"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = {**asdict(self), "cosine": self.cosine, "kept": self.kept}
        if (accuracy := self.accuracy) is not None:
            values["accuracy"] |= {"loss_points": accuracy.loss, "most_loss_points": accuracy.most_loss}
        return values


def _groups(samples: CheckSamples) -> Iterator[tuple[Subset, Ints]]:
    """Samples that have the same modalities, in chunks."""
    for subset, rows in by_subset(tuple(samples.images), samples.present):
        for start in range(0, len(rows), _CHUNK):
            yield subset, rows[start : start + _CHUNK]


def search(loaded: TrainedModel, run: Runner, samples: CheckSamples, what: str) -> RetrievalResult | None:
    """Retrieval among labelled samples, each seen in what it has, by features of both branches.

    None where it means nothing.
    """
    if samples.labels is None or samples.query is None or samples.gallery is None:
        return None
    similarity = loaded.similarity(BOTH)
    features = np.empty((len(samples), loaded.sizes[BOTH]), np.float32)
    for subset, rows in progress(list(_groups(samples)), what):
        features[rows] = run(*samples.take(subset, rows))[BOTH]
    query, gallery = (
        similarity.prepare(features[rows], samples.present[rows]) for rows in (samples.query, samples.gallery)
    )
    try:
        return evaluate_scores(SimilarityScores(similarity, query, gallery), samples.labels)
    except DataError:  # no query has a correct match
        return None


def compare_results(
    first: RetrievalResult | None, second: RetrievalResult | None, samples: CheckSamples
) -> Accuracy | None:
    """The figures of two searches of the same samples, by the original and by the exported model."""
    if first is None or second is None or samples.query is None or samples.gallery is None:
        return None
    return Accuracy(
        feature=BOTH,
        queries=len(samples.query),
        gallery=len(samples.gallery),
        map=(first.map, second.map),
        rank1=(float(first.cmc[0]), float(second.cmc[0])),
        difference=paired_bootstrap(first, second) if first.identities > 1 else None,
        whole=samples.whole,
    )
