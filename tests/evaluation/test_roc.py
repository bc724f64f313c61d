"""Verification rates against every pair counted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from slimreid.errors import DataError
from slimreid.evaluation import ScoreHistogram, evaluate_retrieval


def case(Q: int = 60, G: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 12))
    out: dict[str, Any] = {}
    for side, rows in (("query", Q), ("gallery", G)):
        ids = rng.integers(0, 20, rows)
        out[f"{side}_ids"], out[f"{side}_cameras"] = ids, rng.integers(0, 3, rows)
        features = centres[ids] + rng.normal(size=(rows, 12))
        out[f"{side}_features"] = features / np.linalg.norm(features, axis=1, keepdims=True)
    return out


def pair_scores(data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of all true and of all false pairs; the same identity in the same camera is neither."""
    true, false = [], []
    for q, identity, camera in zip(
        data["query_features"], data["query_ids"], data["query_cameras"], strict=True
    ):
        for g, other, place in zip(
            data["gallery_features"], data["gallery_ids"], data["gallery_cameras"], strict=True
        ):
            if identity != other:
                false.append(float(q @ g))
            elif camera != place:
                true.append(float(q @ g))
    return np.array(true), np.array(false)


@pytest.mark.parametrize("chunk_megabytes", [0.01, 96.0])
def test_rates_and_thresholds(chunk_megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimreid.evaluation.roc._AT_ONCE", 1000)
    data = case()
    true, false = pair_scores(data)
    histogram = evaluate_retrieval(**data, histogram=True, chunk_megabytes=chunk_megabytes).histogram
    assert histogram is not None
    assert (histogram.true.sum(), histogram.false.sum()) == (len(true), len(false))
    width = 2**-15
    for point in histogram.operating_points((0.3, 1e-2, 1e-3, 1e-4)):
        assert point.threshold is not None
        assert point.true_match_rate == pytest.approx((true >= point.threshold).mean(), abs=1e-12)
        assert point.measured_false_match_rate == pytest.approx((false >= point.threshold).mean(), abs=1e-12)
        assert point.measured_false_match_rate <= point.false_match_rate
        # One bin lower would already call too many false pairs the same.
        assert (false >= point.threshold - width).mean() > point.false_match_rate
        assert point.supported == (point.false_match_rate * len(false) >= 1)


def test_curve_and_coarse_histogram() -> None:
    data = case()
    true, false = pair_scores(data)
    histogram = evaluate_retrieval(**data, histogram=True).histogram
    assert histogram is not None
    thresholds, false_rate, true_rate = histogram.roc()
    assert (false_rate[0], true_rate[0], false_rate[-1], true_rate[-1]) == (1, 1, 0, 0)
    at = int(np.searchsorted(thresholds, 0.25))
    assert thresholds[at] == 0.25
    assert (false_rate[at], true_rate[at]) == pytest.approx(((false >= 0.25).mean(), (true >= 0.25).mean()))
    area = (-np.diff(false_rate) * (true_rate[1:] + true_rate[:-1]) / 2).sum()
    assert area == pytest.approx((true[:, None] > false).mean(), abs=1e-3)
    edges, coarse_true, coarse_false = histogram.coarse(64)
    assert_array_equal(coarse_true, np.histogram(true, edges)[0])
    assert_array_equal(coarse_false, np.histogram(false, edges)[0])
    with pytest.raises(DataError, match="power of two"):
        histogram.coarse(100)


def test_bin_edges_are_exact() -> None:
    # Cosine exactly 1 and exactly 0: on the edges, where rounding would show.
    result = evaluate_retrieval(
        np.eye(2), np.eye(2), [0, 1], [0, 1], protocol="none", histogram=True
    ).histogram  # fmt: skip
    assert result is not None
    assert_array_equal(result.true.nonzero()[0], [65535])
    assert_array_equal(result.false.nonzero()[0], [32768])
    point = result.operating_points((1e-4,))[0]
    assert point.threshold == pytest.approx(2**-15)
    assert (point.true_match_rate, point.supported) == (1.0, False)


def test_a_rate_that_no_threshold_reaches() -> None:
    same = np.ones((4, 2))
    histogram = evaluate_retrieval(
        same, same, [0, 1, 0, 1], [0, 1, 0, 1], protocol="none", histogram=True
    ).histogram  # fmt: skip
    assert histogram is not None
    point = histogram.operating_points((1e-2,))[0]
    assert point.threshold is None
    assert_allclose([point.true_match_rate, point.measured_false_match_rate], 0)


def test_refusals() -> None:
    counts = np.zeros(65536, dtype=np.int64)
    with pytest.raises(DataError, match="no false pairs"):
        ScoreHistogram(counts + 1, counts).roc()
    with pytest.raises(DataError, match="no true pairs"):
        ScoreHistogram(counts, counts + 1).operating_points()
    with pytest.raises(DataError, match="must be"):
        ScoreHistogram(counts[:10], counts)
