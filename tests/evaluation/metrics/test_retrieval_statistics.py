"""Intervals, chance level and camera pairs, recomputed the long way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from slimreid.errors import ConfigError, DataError
from slimreid.evaluation import (
    RetrievalResult,
    bootstrap_map,
    paired_bootstrap,
)
from slimreid.evaluation.metrics.result import expected_average_precision
from support.retrieval import camera_pairs, retrieve


def case(seed: int, noise: float = 1.0, Q: int = 120, G: int = 400, identities: int = 40) -> dict[str, Any]:
    """The labels depend on the seed alone, so that results of different noise are comparable."""
    labels = np.random.default_rng(seed)
    rng = np.random.default_rng(seed + 1)
    centres = rng.normal(size=(identities, 16))
    out: dict[str, Any] = {}
    for side, rows in (("query", Q), ("gallery", G)):
        ids = labels.integers(0, identities, rows)
        out[f"{side}_ids"] = ids
        out[f"{side}_cameras"] = labels.integers(0, 3, rows)
        out[f"{side}_scenes"] = labels.integers(0, 5, rows)
        out[f"{side}_features"] = (centres[ids] + noise * rng.normal(size=(rows, 16))).astype(np.float32)
    out["query_ids"][:2] = 1000
    return out


def plain_bootstrap(result: RetrievalResult, samples: int, seed: int) -> np.ndarray:
    """Draw identities one by one and average over all their queries."""
    rng = np.random.default_rng(seed)
    names = sorted(set(result.query_ids[result.valid].tolist()))
    means = []
    for _ in range(samples):
        values: list[float] = []
        for name in rng.choice(names, len(names)):
            values += result.average_precision[result.valid & (result.query_ids == name)].tolist()
        means.append(sum(values) / len(values))
    return np.array(means)


def test_interval_agrees_with_a_plain_loop() -> None:
    result = retrieve(**case(0))
    interval = bootstrap_map(result, samples=4000)
    means = plain_bootstrap(result, 1500, seed=7)
    low, high = np.quantile(means, [0.025, 0.975])
    assert interval.value == result.map
    assert interval.low < result.map < interval.high
    # Two independent sets of draws: the ends agree to a fraction of the width.
    assert abs(interval.low - low) < 0.1 * (high - low)
    assert abs(interval.high - high) < 0.1 * (high - low)


def test_interval_is_reproducible_and_narrows_with_the_level() -> None:
    result = retrieve(**case(0))
    assert bootstrap_map(result, samples=300) == bootstrap_map(result, samples=300)
    assert bootstrap_map(result, samples=300) != bootstrap_map(result, samples=300, seed=1)
    wide, narrow = bootstrap_map(result), bootstrap_map(result, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert json.loads(json.dumps(wide.to_dict()))["low"] == wide.low


def test_interval_covers_the_truth() -> None:
    # Identities whose true mean is known: nineteen of twenty intervals should hold it.
    base = retrieve(**case(0))
    rng = np.random.default_rng(3)
    held = 0
    for trial in range(200):
        ids = np.repeat(np.arange(40), 3)
        precision = np.clip(np.repeat(rng.uniform(0.3, 0.7, 40), 3) + rng.uniform(-0.1, 0.1, 120), 0.01, 1)
        ones = np.ones(120, dtype=np.int64)
        result = RetrievalResult(
            "camera", ids, precision, precision, ones, ones, ones * 9, base.cmc,
            base.top_index, base.top_score, base.top_is_match,
        )  # fmt: skip
        interval = bootstrap_map(result, samples=300, seed=trial)
        held += interval.low <= 0.5 <= interval.high
    assert 0.88 <= held / 200 <= 0.99


def test_parts_of_draws_change_nothing_but_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    result = retrieve(**case(0))
    expected = bootstrap_map(result, samples=200)
    monkeypatch.setattr("slimreid.bootstrap._NUMBERS_AT_ONCE", 100)
    found = bootstrap_map(result, samples=200)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_paired_difference() -> None:
    good, bad = retrieve(**case(0, noise=0.8)), retrieve(**case(0, noise=1.5))
    better = paired_bootstrap(bad, good)
    assert better.value == pytest.approx(good.map - bad.map)
    assert 0 < better.low < better.value < better.high
    assert better.clear
    assert better.share_positive == 1.0
    worse = paired_bootstrap(good, bad)
    assert (worse.low, worse.high) == pytest.approx((-better.high, -better.low))
    same = paired_bootstrap(good, good)
    assert (same.value, same.low, same.high, same.share_positive, same.clear) == (0, 0, 0, 0.5, False)
    # Pairing removes what identities have in common, so it must beat two intervals on their own.
    apart = (
        bootstrap_map(good).high - bootstrap_map(good).low + bootstrap_map(bad).high - bootstrap_map(bad).low
    )
    assert better.high - better.low < apart


def test_statistics_refuse_what_they_cannot_do() -> None:
    result = retrieve(**case(0))
    with pytest.raises(DataError, match="different queries"):
        paired_bootstrap(result, retrieve(**case(1)))
    with pytest.raises(DataError, match="skip different queries"):
        paired_bootstrap(result, retrieve(**case(0), protocol="scene"))
    with pytest.raises(ConfigError, match="level"):
        bootstrap_map(result, level=1.0)
    with pytest.raises(ConfigError, match="samples"):
        bootstrap_map(result, samples=1)
    alone = retrieve(np.eye(2), np.eye(2), [0, 0], [0, 0], protocol="none")
    with pytest.raises(DataError, match="at least two"):
        paired_bootstrap(alone, alone)
    assert np.isnan([bootstrap_map(alone).low, bootstrap_map(alone).high]).all()
    assert bootstrap_map(alone).value == alone.map


@settings(max_examples=25, deadline=None)
@given(N=st.integers(1, 30), data=st.data(), seed=st.integers(0, 1000))
def test_expected_precision_of_a_random_order(N: int, data: st.DataObject, seed: int) -> None:
    R = data.draw(st.integers(1, N))
    rng = np.random.default_rng(seed)
    right = rng.permuted(np.tile(np.arange(N) < R, (4000, 1)), axis=1)
    precision = np.cumsum(right, axis=1) / np.arange(1, N + 1)
    average = (precision * right).sum(axis=1) / R
    expected = expected_average_precision(np.array([R]), np.array([N]))[0]
    assert abs(average.mean() - expected) <= 5 * average.std() / np.sqrt(4000) + 1e-12


@pytest.mark.parametrize("protocol", ["camera", "scene", "none"])
def test_chance_is_what_random_features_score(protocol: str) -> None:
    data = case(4, Q=60, G=90, identities=8)
    labels = {name: value for name, value in data.items() if not name.endswith("features")}
    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        features = rng.normal(size=(150, 64)).astype(np.float32)
        result = retrieve(features[:60], features[60:], **labels, protocol=protocol)
        found.append(result.map)
    assert abs(np.mean(found) - result.chance_map) < 5 * np.std(found) / np.sqrt(60)


@pytest.mark.parametrize("protocol", ["camera", "scene", "none"])
def test_camera_pairs_equal_separate_evaluations(protocol: str) -> None:
    data = case(5)
    pairs = camera_pairs(**data, protocol=protocol)
    assert pairs.query_cameras.tolist() == pairs.gallery_cameras.tolist() == [0, 1, 2]
    for a in range(3):
        for b in range(3):
            part = {
                name: value[data[f"{name.split('_')[0]}_cameras"] == (a if name.startswith("query") else b)]
                for name, value in data.items()
            }
            if protocol == "camera" and a == b:
                assert np.isnan(pairs.map[a, b])
                assert pairs.queries[a, b] == 0
                continue
            result = retrieve(**part, protocol=protocol)
            assert pairs.map[a, b] == pytest.approx(result.map, abs=1e-6)
            assert pairs.queries[a, b] == result.valid_queries
    stored = json.loads(json.dumps(pairs.to_dict(), allow_nan=False))
    assert (stored["map"][1][1] is None) == (protocol == "camera")
    assert_allclose(stored["map"][0][1], pairs.map[0, 1])
