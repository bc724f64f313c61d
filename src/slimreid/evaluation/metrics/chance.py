"""What a random order would score: the level that any model has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma


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
