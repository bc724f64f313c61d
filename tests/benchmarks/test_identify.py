"""The benchmark of identification: its searches on random people, and all steps on a tiny world."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.identification import outcomes as reference
from slimreid.gallery.decisions.rates import threshold_estimate
from support.gallery import PLAIN


@pytest.fixture(scope="module")
def identify(load_benchmark):
    return load_benchmark("identify")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 6), rows=st.integers(0, 8))
def test_outcomes_equal_a_plain_loop(identify, seed: int, queries: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (queries, rows)).astype(np.float32)  # few values, so that ties occur
    scores[rng.random(scores.shape) < 0.3] = np.nan
    who, names = (rng.choice(["a", "b", "c"], n) for n in (queries, rows))
    found = identify.search_outcomes(scores, who, names, np.full(queries, "r"))
    wanted = reference(scores.tolist(), who.tolist(), names.tolist())
    np.testing.assert_array_equal(np.stack([found.other, found.own], axis=1), np.array(wanted))


def test_a_case_equals_the_functions_it_is_made_of(identify, people) -> None:
    found, maps = identify.measure(people)
    case = found[identify.Case(identify.COMPLETE, identify.COSINE, "rnt")]
    parts = {}
    for name in ("mated", "strangers", "held_out"):
        at = getattr(people, name)
        scores = PLAIN(people.features[0, at], people.features[0, people.rows])
        parts[name] = identify.search_outcomes(
            scores, people.identity[at], people.identity[people.rows], np.full(len(at), "")
        )
    threshold = threshold_estimate(parts["strangers"].other, parts["strangers"].identity, 0.01).value
    hit = (parts["mated"].own > threshold) & (parts["mated"].other <= threshold)
    assert case.to_dict()["fnir"]["value"] == np.mean(~hit)
    assert case.to_dict()["fpir"]["value"] == np.mean(parts["held_out"].other > threshold)
    assert (case.searches, len(case.enrolled), len(case.strangers)) == (320, 320, 320)
    assert found[identify.Case(identify.COMPLETE, identify.SITE, "r", rate=0.003)].to_dict()["fnir"] is None
    assert set(maps) == {identify.COSINE, identify.TRAINING, identify.SITE}


def test_tracklets_are_the_images_of_one_person_by_one_camera(identify, people) -> None:
    at = people.mated
    prepared, who = identify.queries(people, PLAIN, at, np.full(len(at), 6), identify.TRACKLET)
    assert who.tolist() == sorted(set(people.identity[at].tolist()))
    assert len(prepared) == 160


def test_seeds_are_joined_as_different_people(identify, people) -> None:
    found, _ = identify.measure(people)
    case = identify.Case(identify.RANDOM, identify.SITE, "rnt")
    twice = identify.join([found[case], found[case]])
    assert len(set(twice.strangers)) == 160
    assert twice.to_dict()["fpir"]["value"] == found[case].to_dict()["fpir"]["value"]
    none = found[identify.Case(identify.COMPLETE, identify.SITE, "r", rate=0.003)]
    assert identify.join([found[case], none]).missed is None


def test_all_steps_run(identify, tmp_path, capsys) -> None:
    words = ["--folder", str(tmp_path / "made"), "--fast", "--seeds", "0", "--out", str(tmp_path / "out")]
    assert identify.main(words) == 0
    assert "too few" in capsys.readouterr().out, "16 searches promise nothing"
    figures = json.loads((tmp_path / "out" / "seed0.json").read_text())
    case = figures["cases"]["rows random, scale site, query rnt, FPIR 0.01"]
    assert case["fnir"] is None
    assert case["searches_behind_threshold"] == 16
    assert (tmp_path / "out" / "all.json").is_file()
