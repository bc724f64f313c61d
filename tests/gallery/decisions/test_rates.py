"""Error rates and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from reference.identification import threshold as reference
from slimreid.errors import ConfigError
from slimreid.gallery.decisions.rates import (
    false_negative,
    false_positive,
    independent_searches,
    needed_searches,
    rate_after_growth,
    rate_estimate,
    threshold_estimate,
    threshold_for,
)
from slimreid.gallery.decisions.searches import Searches


@pytest.mark.parametrize(("rate", "count"), [(0.01, 299), (0.003, 998), (0.001, 2995), (0.5, 5)])
def test_needed_searches_follow_the_rule_of_three(rate: float, count: int) -> None:
    assert needed_searches(rate) == count
    assert (1 - rate) ** count <= 0.05 < (1 - rate) ** (count - 1)
    assert abs(count - 3 / rate) <= 1 + 0.002 * 3 / rate or rate > 0.1


@pytest.mark.parametrize("rate", [0, 1, -0.1, 2])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.01 = 1 %"):
        needed_searches(rate)


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    rate=st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5]),
)
def test_the_threshold_equals_a_plain_loop(scores: list[int], rate: float) -> None:
    values = np.array(scores, dtype=np.float64)
    found = threshold_for(values, rate)
    wanted = reference(scores, rate)
    assert found == wanted
    if found is not None:
        assert (values > found).mean() <= rate


def test_thresholds_rise_as_rates_fall() -> None:
    scores = np.random.default_rng(0).normal(size=5000)
    found = [threshold_for(scores, rate) for rate in (0.1, 0.03, 0.01, 0.003, 0.001)]
    assert found == sorted(found)
    assert threshold_for(scores[:98], 0.01) is None


def test_the_promise_holds_on_new_searches() -> None:
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(300):
        threshold = threshold_for(rng.normal(size=300), 0.01)
        rates.append((rng.normal(size=2000) > threshold).mean())
    assert 0.007 < np.mean(rates) <= 0.0105


def test_errors_are_counted_as_answers_would_be_wrong() -> None:
    nan = np.nan
    searches = Searches(
        np.arange(6),
        other=np.array([0.0, 2.0, 2.0, 1.0, nan, 0.0]),
        own=np.array([2.0, 3.0, nan, 1.0, 2.0, 0.5]),
        subset=np.full(6, "r"),
    )
    assert false_positive(searches, 1.0).tolist() == [False, True, True, False, False, False]
    assert false_negative(searches, 1.0).tolist() == [False, True, True, True, False, True]


def test_an_interval_is_never_narrower_than_the_binomial_one() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.01, 0.3, 1.0):
        wrong = rng.random(400) < share
        found = rate_estimate(wrong, np.repeat(np.arange(40), 10))
        exact = binomtest(int(wrong.sum()), 400).proportion_ci(0.95)
        assert found.value == wrong.mean()
        assert found.low <= exact.low + 1e-9
        assert found.high >= exact.high - 1e-9
    assert rate_estimate(np.zeros(0, bool), np.zeros(0)).value != 0


def test_searches_of_one_identity_stand_or_fall_together() -> None:
    rng = np.random.default_rng(0)
    wrong = np.repeat(rng.random(40) < 0.3, 10)
    grouped, apart = (rate_estimate(wrong, who) for who in (np.repeat(np.arange(40), 10), np.arange(400)))
    assert grouped.high - grouped.low > 1.8 * (apart.high - apart.low)


def test_the_interval_of_a_threshold_resamples_identities() -> None:
    rng = np.random.default_rng(0)
    identity = np.repeat(np.arange(200), 5)
    scores = rng.normal(size=200)[identity] + 0.3 * rng.normal(size=1000)
    grouped, apart = (threshold_estimate(scores, who, 0.05) for who in (identity, np.arange(1000)))
    assert grouped is not None
    assert apart is not None
    assert apart.value == threshold_for(scores, 0.05) < grouped.value
    assert grouped.low <= grouped.value <= grouped.high
    assert grouped.high - grouped.low > apart.high - apart.low
    assert threshold_estimate(scores[:5], identity[:5], 0.05) is None


def test_a_resampled_threshold_equals_a_loop_over_repeated_scores(monkeypatch) -> None:
    monkeypatch.setattr("slimreid.gallery.decisions.rates.RESAMPLES", 50)
    rng = np.random.default_rng(3)
    identity, scores = rng.integers(0, 8, 60), rng.integers(0, 9, 60).astype(np.float64)
    names = np.unique(identity)
    draws = np.random.default_rng(7).multinomial(len(names), np.full(len(names), 1 / len(names)), size=50)
    independent = independent_searches(scores > threshold_for(scores, 0.2), identity)
    share = (0.2 * (independent + 1) - 1) / independent
    wanted = []
    for draw in draws:
        parts = [np.tile(scores[identity == name], k) for name, k in zip(names, draw, strict=True)]
        repeated = sorted(np.concatenate(parts), reverse=True)
        wanted.append(repeated[int(share * len(repeated) + 1e-9)])
    estimate = threshold_estimate(scores, identity, 0.2, seed=7)
    assert estimate is not None
    low, high = np.quantile(wanted, [0.025, 0.975])
    assert (estimate.low, estimate.high) == (min(low, estimate.value), max(high, estimate.value))


def test_searches_of_people_who_always_look_alike_count_once() -> None:
    identity = np.repeat(np.arange(50), 10)
    together = np.repeat(np.arange(50) % 5 == 0, 10)
    assert independent_searches(together, identity) == pytest.approx(50)
    spread = np.tile(np.arange(10) == 0, 50)
    assert independent_searches(spread, identity) == 500
    assert independent_searches(together, np.arange(500)) == pytest.approx(500, rel=0.01)
    assert independent_searches(np.zeros(500, bool), identity) == 500
    assert independent_searches(np.zeros(0, bool), np.zeros(0)) == 0


def test_the_promise_holds_for_new_people_who_come_several_times() -> None:
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(200):
        scores = [
            rng.normal(size=100)[np.repeat(np.arange(100), 10)] + 0.5 * rng.normal(size=1000) for _ in "ab"
        ]
        found = threshold_estimate(scores[0], np.repeat(np.arange(100), 10), 0.05)
        assert found is not None
        rates.append((scores[1] > found.value).mean())
    assert 0.03 < np.mean(rates) <= 0.05


def test_growth_multiplies_the_chances() -> None:
    assert rate_after_growth(0.01, 100, 100) == 0.01
    assert rate_after_growth(0.01, 100, 50) == 0.01
    assert rate_after_growth(0.01, 100, 200) == pytest.approx(1 - 0.99**2)
