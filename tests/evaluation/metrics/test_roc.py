"""Verification rates against every pair counted one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slimreid.errors import DataError
from slimreid.evaluation import RocCurve
from slimreid.evaluation.metrics import roc as roc_module
from slimreid.evaluation.metrics.roc import short_between
from support.retrieval import retrieve


def case(Q: int = 60, G: int = 300, spread: float = 1.0) -> dict[str, Any]:
    """Clusters of 20 identities; a small `spread` packs all cosines close to 1."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 12))
    out: dict[str, Any] = {}
    for side, rows in (("query", Q), ("gallery", G)):
        ids = rng.integers(0, 20, rows)
        out[f"{side}_ids"], out[f"{side}_cameras"] = ids, rng.integers(0, 3, rows)
        features = 5.0 * (spread < 1) + spread * (centres[ids] + rng.normal(size=(rows, 12)))
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        out[f"{side}_features"] = unit.astype(np.float32)
    return out


def pair_scores(data: dict[str, Any], **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores, as they are ranked, of all true and all false pairs; same identity and camera is neither."""
    true, false = [], []
    G = len(data["gallery_ids"])
    result = retrieve(**data, top_k=G, **options)
    for q, (items, scores) in enumerate(zip(result.top_index, result.top_score, strict=True)):
        for item, score in zip(items[items >= 0], scores[items >= 0], strict=True):
            same = data["query_ids"][q] == data["gallery_ids"][item]
            (true if same else false).append(score)
    return np.array(true), np.array(false)


def exact(true: np.ndarray, false: np.ndarray, rate: float) -> float:
    """True match rate at the lowest threshold with at most this share of false matches, one by one."""
    for threshold in np.unique(np.concatenate([true, false])):
        if (false >= threshold).mean() <= rate:
            return float((true >= threshold).mean())
    return 0.0


@pytest.mark.parametrize("spread", [1.0, 0.05])
@pytest.mark.parametrize("kept", ["all", "few"])
@pytest.mark.parametrize("chunk_megabytes", [0.01, 96.0])
def test_rates_and_thresholds_are_exact(
    spread: float, kept: str, chunk_megabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept == "few":  # as with billions of pairs: only those of the highest 1 % are kept
        monkeypatch.setattr(roc_module, "KEEP_ALL", 10)
    data = case(spread=spread)
    true, false = pair_scores(data, chunk_megabytes=chunk_megabytes)
    if spread < 1:
        assert min(true.min(), false.min()) > 0.998
    roc = retrieve(**data, roc=True, chunk_megabytes=chunk_megabytes).roc
    assert roc is not None
    assert (roc.true_pairs, roc.false_pairs) == (len(true), len(false))
    for point in roc.operating_points():
        assert point.threshold is not None
        assert point.true_match_rate == pytest.approx((true >= point.threshold).mean(), abs=1e-12)
        assert point.measured_false_match_rate == pytest.approx((false >= point.threshold).mean(), abs=1e-12)
        assert point.measured_false_match_rate <= point.false_match_rate
        assert point.true_match_rate == pytest.approx(exact(true, false, point.false_match_rate), abs=1e-12)
        assert point.supported == (point.false_match_rate * len(false) >= 1)
    for threshold, f, t in zip(roc.thresholds, roc.false_rate, roc.true_rate, strict=True):
        assert ((false >= threshold).mean(), (true >= threshold).mean()) == pytest.approx((f, t), abs=1e-12)
    assert (roc.false_rate[0], roc.true_rate[0], roc.false_rate[-1]) == (1, 1, 0)


def test_packed_cosines_are_told_apart() -> None:
    # Bins of a fixed width would put most pairs into a few of them: 10.3 % instead of 21.1 % were found so.
    data = case(spread=0.05)
    true, false = pair_scores(data)
    roc = retrieve(**data, roc=True).roc
    assert roc is not None
    found = roc.operating_points([1e-2])[0].true_match_rate
    width = 2**-15
    edges = np.floor(np.sort(false)[::-1][int(0.01 * len(false))] / width) * width + width
    assert found > (true >= edges).mean() + 0.03


def test_curve_and_histogram() -> None:
    data = case()
    true, false = pair_scores(data)
    roc = retrieve(**data, roc=True).roc
    assert roc is not None
    area = (-np.diff(roc.false_rate) * (roc.true_rate[1:] + roc.true_rate[:-1]) / 2).sum()
    assert area == pytest.approx((true[:, None] > false).mean(), abs=5e-3)
    assert_array_equal(roc.true, np.histogram(true, roc.edges)[0])
    assert_array_equal(roc.false, np.histogram(false, roc.edges)[0])


def test_memory_does_not_grow_with_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roc_module, "KEEP_ALL", 50)
    pairs = roc_module.PairScores(100_000)
    rng = np.random.default_rng(0)
    for _ in range(200):
        pairs._add_false(rng.normal(size=500).astype(np.float32))
        assert sum(map(len, pairs._top)) <= 2 * 1001 + 500
        assert len(pairs._below) <= 4097


def test_a_rate_that_no_threshold_reaches() -> None:
    same = np.ones((4, 2))
    roc = retrieve(same, same, [0, 1, 0, 1], [0, 1, 0, 1], protocol="none", roc=True).roc
    assert roc is not None
    point = roc.operating_points((1e-2,))[0]
    assert point.threshold is None
    assert (point.true_match_rate, point.measured_false_match_rate) == (0, 0)


def test_without_false_pairs_there_is_no_curve() -> None:
    assert retrieve(np.eye(2), np.eye(2), [0, 0], [0, 0], protocol="none", roc=True).roc is None


@pytest.mark.parametrize(
    ("low", "high", "short"),
    [
        (0.31, 0.39, 0.39),
        (0.1, 0.5, 0.5),
        (0.99981, 0.999845, 0.99984),
        (-np.inf, -0.25, -0.3),
        (1, np.inf, np.inf),
    ],
)
def test_thresholds_have_as_few_decimals_as_possible(low: float, high: float, short: float) -> None:
    assert short_between(low, high) == short


def test_refusals() -> None:
    roc = retrieve(**case(), roc=True).roc
    assert isinstance(roc, RocCurve)
    with pytest.raises(DataError, match="one per threshold"):
        replace(roc, true_rate=roc.true_rate[1:])
    with pytest.raises(DataError, match="must ascend"):
        replace(roc, thresholds=roc.thresholds[::-1])
    with pytest.raises(DataError, match="128 bins"):
        replace(roc, true=roc.true[1:])
