"""What a random order would score: the level that any model has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from slimreid.evaluation.inputs import Labels, check_labels
from slimreid.evaluation.protocols import PartnerIndex, no_match_error


def expected_average_precision(
    matches: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean average precision over all orders of N candidates with R ≥ 1 right ones, elementwise.

    Rank k is right with probability R/N, and then each of the k − 1 before it with (R−1)/(N−1). Summing
    the expected precision over ranks gives (H_N + (N − H_N)·(R−1)/(N−1)) / N, with H_N = 1 + 1/2 + ... + 1/N.
    """
    N = np.asarray(candidates, dtype=np.float64)
    R = np.asarray(matches, dtype=np.float64)
    harmonic = digamma(N + 1) + np.euler_gamma
    share = (R - 1) / np.maximum(N - 1, 1)
    value: NDArray[np.float64] = (harmonic + (N - harmonic) * share) / N
    return value


def chance_map(
    query_ids: Labels,
    gallery_ids: Labels,
    query_cameras: Labels | None = None,
    gallery_cameras: Labels | None = None,
    query_scenes: Labels | None = None,
    gallery_scenes: Labels | None = None,
    protocol: str = "camera",
    *,
    query_index: Labels | None = None,
    gallery_index: Labels | None = None,
) -> float:
    """The mAP to expect of a random order of the gallery under `protocol`, exactly.

    Labels as in `evaluate_retrieval`. Raises `DataError` when no query has a right answer.
    """
    labels = check_labels(
        protocol,
        (len(query_ids), len(gallery_ids)),
        ids=(query_ids, gallery_ids),
        cameras=(query_cameras, gallery_cameras),
        scenes=(query_scenes, gallery_scenes),
        index=(query_index, gallery_index),
    )
    matches, candidates = PartnerIndex(labels).counts()
    valid = matches > 0
    if not valid.any():
        raise no_match_error(labels)
    return float(expected_average_precision(matches[valid], candidates[valid]).mean())
