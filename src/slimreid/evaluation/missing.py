"""What is left when spectra are missing: every subset of modalities against every other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimreid.console import progress
from slimreid.data.manifest import Sample
from slimreid.errors import DataError
from slimreid.evaluation.features import Features, Subset
from slimreid.evaluation.inputs import Ints, check_labels
from slimreid.evaluation.metrics import evaluate_retrieval
from slimreid.evaluation.parts import retrieval_labels
from slimreid.evaluation.protocols import PartnerIndex
from slimreid.evaluation.records import nullable

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MissingMatrix:
    """Retrieval when queries (rows) and gallery (columns) are seen in S subsets of the modalities."""

    subsets: tuple[Subset, ...]
    """Small ones first; the last one is complete."""
    map: Floats
    """(S, S), 0 to 1; NaN where no query has a right answer."""
    rank1: Floats
    """(S, S), 0 to 1; NaN where no query has a right answer."""
    valid_queries: Ints
    """(S, S): the queries behind each figure; fewer where samples lack a spectrum of their own accord."""
    chance: float
    """mAP to expect of a random order, with all that is there."""
    chances: Floats
    """(S, S): the same for each pair; other than `chance` only where samples lack a spectrum themselves."""

    def __post_init__(self) -> None:
        shape = (len(self.subsets),) * 2
        for name in ("map", "rank1", "valid_queries", "chances"):
            if getattr(self, name).shape != shape:
                raise DataError(f"{name} must be {shape}, not {getattr(self, name).shape}")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: NaN becomes None."""
        return {
            "subsets": [list(subset) for subset in self.subsets],
            "map": nullable(self.map),
            "rank1": nullable(self.rank1),
            "valid_queries": self.valid_queries.tolist(),
            "chance_map": self.chance,
            "chances": nullable(self.chances),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MissingMatrix:
        """The matrix that `to_dict` described."""
        S = len(values["subsets"])
        return cls(
            subsets=tuple(tuple(subset) for subset in values["subsets"]),
            map=np.array(values["map"], dtype=np.float64),
            rank1=np.array(values["rank1"], dtype=np.float64),
            valid_queries=np.array(values["valid_queries"], dtype=np.int64),
            chance=float(values["chance_map"]),
            chances=np.array(values.get("chances", np.full((S, S), values["chance_map"])), dtype=np.float64),
        )


def missing_matrix(
    features: Mapping[Subset, Features],
    kind: str,
    samples: Sequence[Sample],
    query: Ints,
    gallery: Ints,
    protocol: str,
    chance: float,
    show_progress: bool | None = None,
) -> MissingMatrix:
    """Evaluate one kind of feature for every pair of subsets.

    `samples` are the R rows that `features` describe, `query` and `gallery` the rows of each side. A sample
    without any spectrum of a subset is left out of it, on either side.
    """
    subsets = tuple(features)
    S = len(subsets)
    figures, rank1, chances = (np.full((S, S), np.nan) for _ in range(3))
    valid = np.zeros((S, S), dtype=np.int64)
    pairs = [(a, b) for a in range(S) for b in range(S)]
    for a, b in progress(pairs, f"missing spectra ({kind})", show=show_progress):
        first, second = features[subsets[a]], features[subsets[b]]
        rows = _having(first, query), _having(second, gallery)
        labels = retrieval_labels(samples, rows[0].tolist(), rows[1].tolist(), protocol)
        if not _any_match(labels, len(rows[0]), len(rows[1])):
            continue
        result = evaluate_retrieval(
            first.get(kind, rows[0]), second.get(kind, rows[1]), **labels, max_rank=1, top_k=0
        )
        figures[a, b], rank1[a, b], valid[a, b] = result.map, result.rank(1), result.valid_queries
        chances[a, b] = result.chance_map
    return MissingMatrix(subsets, figures, rank1, valid, chance, chances)


def _having(features: Features, rows: Ints) -> torch.Tensor:
    """Those of the rows that have features."""
    chosen = torch.from_numpy(rows)
    return chosen[features.position[chosen] >= 0]


def _any_match(labels: Mapping[str, Any], queries: int, gallery: int) -> bool:
    if not queries or not gallery:
        return False
    pairs = {
        name: (labels.get(f"query_{name}"), labels.get(f"gallery_{name}"))
        for name in ("ids", "cameras", "scenes", "index")
    }
    checked = check_labels(labels["protocol"], (queries, gallery), **pairs)
    return bool((PartnerIndex(checked).counts()[0] > 0).any())
