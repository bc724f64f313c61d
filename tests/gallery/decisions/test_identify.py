"""Known, unsure, unknown or undecided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimreid.errors import DataError
from slimreid.gallery.decisions.calibration import ANY, Bound
from slimreid.gallery.decisions.identify import Candidate, describe_rate, identify
from support.gallery import calibrated, random_searches

NOW = Bound("abc", 100, 400)
CALIBRATION = calibrated()
STRICT = CALIBRATION.point(ANY, 0.01).threshold.value
LAX = CALIBRATION.point(ANY, 0.1).threshold.value
ORDER = ("unknown", "unsure", "known")


def ask(*scores: float, **options):
    people = [Candidate(name, score) for name, score in zip("abcd", scores, strict=False)]
    return identify(people, CALIBRATION, NOW, **options)


def test_one_identity_above_the_strict_threshold_is_known() -> None:
    found = ask(0.0, STRICT + 0.1, LAX + 0.01)
    assert (found.state, found.name, found.rate) == ("known", "b", 0.01)
    assert [c.name for c in found.candidates] == ["b", "c"]
    assert found.reason == "one stranger in 100 would be taken for somebody"


def test_equal_to_a_threshold_is_not_above_it() -> None:
    assert ask(STRICT).state == "unsure"
    assert ask(LAX).state == "unknown"
    assert ask(np.nextafter(STRICT, 9)).state == "known"


def test_several_above_the_strict_threshold_are_for_a_person_to_decide() -> None:
    found = ask(STRICT + 1, STRICT + 2)
    assert (found.state, found.name) == ("unsure", None)
    assert [c.name for c in found.candidates] == ["b", "a"]
    assert "2 identities" in found.reason


def test_between_the_thresholds_is_unsure_and_below_unknown() -> None:
    found = ask((STRICT + LAX) / 2, 0.0)
    assert (found.state, [c.name for c in found.candidates]) == ("unsure", ["a"])
    found = ask(LAX - 0.1)
    assert (found.state, found.candidates, found.rate) == ("unknown", (), 0.01)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 8), st.floats(0, 3), st.sampled_from(CALIBRATION.rates))
def test_a_higher_score_never_makes_the_answer_weaker(score: float, more: float, rate: float) -> None:
    first, second = (ORDER.index(ask(s, -9.0, rate=rate).state) for s in (score, score + more))
    assert second >= first


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 8))
def test_a_lower_rate_never_makes_the_answer_stronger(score: float) -> None:
    found = [ORDER.index(ask(score, rate=rate).state) for rate in CALIBRATION.rates]
    assert found == sorted(found, reverse=True)


def test_strangers_are_taken_for_somebody_as_often_as_promised() -> None:
    others = random_searches(200, 40, seed=9).other
    share = np.mean([ask(score).state == "known" for score in others])
    assert 0.005 < share < 0.015


def test_without_calibration_nothing_is_decided() -> None:
    found = identify([Candidate("a", 99.0)], None, NOW)
    assert (found.state, found.name, found.rate) == ("undecided", None, None)
    assert found.candidates == (Candidate("a", 99.0),)
    assert "calibrate it first" in found.reason


@pytest.mark.parametrize(
    ("now", "words"), [(Bound("x", 100, 400), "another model"), (Bound("abc", 300, 400), "300")]
)
def test_a_calibration_that_does_not_hold_decides_nothing(now: Bound, words: str) -> None:
    found = identify([Candidate("a", 99.0)], CALIBRATION, now)
    assert found.state == "undecided"
    assert words in found.reason


def test_nothing_to_compare_with_decides_nothing() -> None:
    assert "shares a modality" in identify([], CALIBRATION, NOW).reason


def test_a_rate_without_threshold_decides_nothing() -> None:
    few = calibrated(each=8)
    found = identify([Candidate("a", 99.0)], few, NOW, rate=0.001)
    assert found.state == "undecided"
    assert "2,995 searches" in found.reason
    with pytest.raises(DataError, match="no threshold was made"):
        ask(1.0, rate=0.5)


def test_growth_shows_in_the_rate() -> None:
    found = identify([Candidate("a", 99.0)], CALIBRATION, Bound("abc", 200, 400))
    assert found.rate == pytest.approx(0.0199)
    assert "one stranger in 50 " in found.reason


def test_a_subset_that_was_not_calibrated_is_said() -> None:
    assert "too few searches with rn" in ask(99.0, subset="rn").reason
    assert ask(99.0, subset="r").reason == describe_rate(0.01)


def test_rates_in_words() -> None:
    assert describe_rate(0.003) == "one stranger in 333 would be taken for somebody"
    assert describe_rate(0.001) == "one stranger in 1,000 would be taken for somebody"
