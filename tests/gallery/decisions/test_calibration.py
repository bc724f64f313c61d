"""Thresholds with a meaning, and when they hold."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from slimreid.errors import ConfigError, DataError
from slimreid.gallery.decisions.calibration import ANY, RATES, Bound, Calibration, calibrate, unsure_rate
from slimreid.gallery.decisions.rates import threshold_estimate
from slimreid.gallery.decisions.searches import Searches
from support.gallery import PLAIN, calibrated, random_searches

BOUND = Bound("abc", identities=100, rows=400)


def test_each_subset_has_a_threshold_of_its_own() -> None:
    searches = random_searches(identities=100, each=8)
    moved = replace(searches, other=searches.other + 3 * (searches.subset == "t"))
    found = calibrate(moved, BOUND, PLAIN, rates=[0.01])
    by_subset = {name: found.point(name, 0.01).threshold for name in ("r", "t")}
    for name, estimate in by_subset.items():
        assert estimate is not None
        assert estimate == threshold_estimate(
            *(v[moved.subset == name] for v in (moved.other, moved.identity)), 0.01
        )
    assert found.point(ANY, 0.01).threshold == threshold_estimate(moved.other, moved.identity, 0.01)
    assert by_subset["t"].value > by_subset["r"].value + 2


def test_figures_are_counted() -> None:
    searches = random_searches(100, 8)
    is_held = np.isin(searches.identity, np.unique(searches.identity)[:40])
    fitted, held_out = searches[~is_held], searches[is_held]
    point = calibrate(fitted, BOUND, PLAIN, held_out=held_out).point(ANY, 0.01)
    assert (point.searches, point.identities, point.mated, point.held_out) == (480, 60, 480, 320)
    t = point.threshold.value
    assert point.fnir.value == np.mean(~((fitted.own > t) & (fitted.other <= t)))
    assert point.achieved.value == np.mean(held_out.other > t)
    assert point.achieved.low <= 0.01 <= point.achieved.high
    assert not point.refusal


def test_a_rate_with_too_few_searches_is_refused_and_the_number_named() -> None:
    found = calibrate(random_searches(100, 8), BOUND, PLAIN)
    point = found.point(ANY, 0.001)
    assert point.threshold is point.fnir is point.achieved is None
    assert "FPIR 0.10% cannot be promised from 800 searches for 100 strangers" in point.refusal
    assert "2,995 searches" in point.refusal
    assert found.point(ANY, 0.01).threshold is not None
    few_people = calibrate(random_searches(19, 100), BOUND, PLAIN).point(ANY, 0.01)
    assert few_people.threshold is None
    assert "19 strangers" in few_people.refusal


def test_a_subset_with_too_few_searches_takes_the_threshold_of_all() -> None:
    searches = random_searches(100, 8)
    names = np.where(np.arange(len(searches)) < 100, "n", "r")
    found = calibrate(replace(searches, subset=names), BOUND, PLAIN, rates=[0.01])
    assert found.point("n", 0.01).subset == ANY
    assert found.point("r", 0.01).subset == "r"
    assert found.point("rt", 0.01).subset == ANY


def test_searches_that_compare_with_nobody_do_not_count() -> None:
    searches = random_searches(100, 8)
    blind = replace(searches, other=np.where(np.arange(800) % 2, searches.other, np.nan))
    point = calibrate(blind, BOUND, PLAIN).point(ANY, 0.01)
    assert point.searches == 400
    assert point.threshold == threshold_estimate(searches.other[1::2], searches.identity[1::2], 0.01)


def test_strangers_alone_give_thresholds_without_misses() -> None:
    searches = random_searches(100, 8)
    point = calibrate(replace(searches, own=np.full(800, np.nan)), BOUND, PLAIN).point(ANY, 0.01)
    assert point.threshold is not None
    assert point.fnir is None
    assert point.mated == 0


def test_no_searches_at_all_promise_nothing() -> None:
    empty = Searches(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, str))
    assert all(point.threshold is None for point in calibrate(empty, BOUND, PLAIN).points)


def test_rates_have_a_laxer_one() -> None:
    found = calibrated()
    assert found.rates == RATES
    assert [unsure_rate(rate) for rate in RATES] == [0.1, 0.03, 0.01]
    with pytest.raises(DataError, match=r"FPIR 0\.02; choose one of 0\.01, 0\.003, 0\.001"):
        found.point(ANY, 0.02)
    with pytest.raises(ConfigError):
        calibrate(random_searches(30, 2), BOUND, PLAIN, rates=[0.2])


@pytest.mark.parametrize(
    ("now", "state", "words"),
    [
        (BOUND, "ok", ""),
        (Bound("abc", 200, 800), "ok", ""),
        (Bound("abc", 3, 5), "ok", ""),
        (Bound("abc", 201, 400), "outgrown", "100 identities, now there are 201: calibrate again"),
        (Bound("abc", 100, 801), "outgrown", "400 rows, now there are 801: calibrate again"),
        (Bound("xyz", 100, 400), "void", "another model, precision or preprocessing"),
        (Bound("xyz", 999, 999), "void", "another model"),
    ],
)
def test_validity(now: Bound, state: str, words: str) -> None:
    validity = calibrated().valid_for(now)
    assert validity.state == state
    assert words in validity.reason
    assert bool(validity) == (state == "ok")


def test_json_keeps_everything() -> None:
    table = np.full((7, 7, 2), np.nan, np.float32)
    table[PLAIN.shares] = (0.1, 0.7)
    made = calibrate(random_searches(100, 8), BOUND, replace(PLAIN, impostors=table))
    read = Calibration.from_json(made.to_json())
    assert (read.bound, read.points) == (made.bound, made.points)
    assert (read.similarity.modalities, read.similarity.blocks) == (PLAIN.modalities, PLAIN.blocks)
    np.testing.assert_array_equal(read.similarity.impostors, table)
    assert Calibration.from_json(calibrated().to_json()).similarity.impostors is None


def change(**changes: object) -> str:
    return json.dumps(json.loads(calibrated().to_json()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        change(bound={"fingerprint": "abc", "identities": 1}),
        change(bound={"fingerprint": "abc", "identities": 1, "rows": 2, "more": 3}),
        change(blocks=[["rgb"], ["sonar"]]),
        change(blocks=[1]),
        change(scale=[[1, 2]]),
        change(scale="x"),
        change(points=[{"subset": ""}]),
        change(
            points=[
                {
                    "subset": "",
                    "rate": 0.01,
                    "searches": 1,
                    "identities": 1,
                    "mated": 1,
                    "held_out": 1,
                    "x": 1,
                }
            ]
        ),
        change(points=[json.loads(calibrated().to_json())["points"][0] | {"threshold": {"value": "high"}}]),
    ],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="calibrate again"):
        Calibration.from_json(text)
