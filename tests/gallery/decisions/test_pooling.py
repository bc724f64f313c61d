"""Tracklets, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.identification import pool as reference
from slimreid.errors import DataError
from slimreid.gallery.decisions.pooling import pool_shots
from slimreid.inference.similarity import Similarity
from slimreid.modalities import all_subsets
from support.gallery import NAMES, PLAIN, crowd, mask_of

JOINT = Similarity(NAMES, tuple(all_subsets(NAMES)))
"""With blocks that need several modalities at once."""


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), joint=st.booleans(), shots=st.integers(1, 9))
def test_equals_a_plain_loop(seed: int, joint: bool, shots: int) -> None:
    rng = np.random.default_rng(seed)
    similarity = JOINT if joint else PLAIN
    features = rng.normal(size=(shots, 2 * len(similarity.blocks)))
    present = rng.random((shots, 3)) < 0.5
    present[np.arange(shots), rng.integers(0, 3, shots)] = True
    quality, groups = rng.random(shots) * (rng.random(shots) < 0.7), rng.integers(5, 8, shots)
    found = pool_shots(similarity, features, present, quality, groups)
    assert found.groups.tolist() == sorted(set(groups.tolist()))
    for t, group in enumerate(found.groups):
        rows = np.flatnonzero(groups == group)
        has = [{name for name, there in zip(NAMES, present[row], strict=True) if there} for row in rows]
        wanted = reference(features[rows].tolist(), has, quality[rows].tolist(), similarity.blocks)
        seen = {name for name, there in zip(NAMES, found.present[t], strict=True) if there}
        assert seen <= set().union(*has)
        flat = np.zeros_like(features[0])
        for b, block in enumerate(similarity.blocks):
            if set(block) <= seen:
                assert wanted[b] is not None, "a block that no shot has"
                flat[2 * b : 2 * b + 2] = wanted[b]
        np.testing.assert_allclose(found.features[t], flat / np.linalg.norm(flat), atol=1e-5)


def test_one_shot_stays_as_it_is() -> None:
    one = crowd(1, 1, present=mask_of("rgb", "tir"))
    found = pool_shots(PLAIN, one.features, one.present)
    np.testing.assert_array_equal(found.present, one.present)
    assert PLAIN(found.features, one.features, one.present, one.present)[0, 0] == pytest.approx(1, abs=1e-6)


def test_shots_with_different_modalities_make_a_complete_tracklet() -> None:
    features = crowd(1, 3).features
    found = pool_shots(PLAIN, features, np.eye(3, dtype=bool))
    assert found.present.tolist() == [[True, True, True]]
    scores = PLAIN(found.features, features, None, np.eye(3, dtype=bool))
    np.testing.assert_allclose(scores, 1, atol=1e-6)


def test_a_joint_block_that_no_shot_has_is_not_claimed() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3, 7 * 4))
    present = np.array([mask_of("rgb", "nir"), mask_of("tir"), mask_of("tir")])
    found = pool_shots(JOINT, features, present)
    assert found.present.tolist() == [mask_of("rgb", "nir").tolist()]
    thermal = pool_shots(JOINT, features[:2], np.array([mask_of("rgb"), mask_of("tir")]), [0.1, 0.9])
    assert thermal.present.tolist() == [mask_of("tir").tolist()], "the better seen of equally large ones"


def test_a_shot_without_quality_does_not_count() -> None:
    features = crowd(1, 3).features
    good = pool_shots(PLAIN, features[:2])
    np.testing.assert_allclose(
        pool_shots(PLAIN, features, None, [1, 1, 0]).features, good.features, atol=1e-6
    )
    equal = pool_shots(PLAIN, features)
    np.testing.assert_array_equal(pool_shots(PLAIN, features, None, [0, 0, 0]).features, equal.features)


def test_pooling_brings_a_tracklet_nearer_to_its_identity() -> None:
    samples = crowd(20, 8, noise=1.5)
    shots, rows = np.arange(160) % 8 < 4, np.arange(160) % 8 >= 4
    found = pool_shots(PLAIN, samples.features[shots], groups=samples.identity[shots])

    def right(query: np.ndarray, who: np.ndarray) -> float:
        scores = PLAIN(query, samples.features[rows])
        return float((samples.identity[rows][scores.argmax(axis=1)] == who).mean())

    assert right(found.features, found.groups) > right(samples.features[shots], samples.identity[shots])


@pytest.mark.parametrize(
    ("quality", "groups", "words"),
    [
        ([1, -1], None, "at least 0"),
        ([1, np.nan], None, "at least 0"),
        ([1], None, r"quality must be \(2,\)"),
        (None, [1], "groups"),
    ],
)
def test_bad_input_is_refused(quality, groups, words: str) -> None:
    with pytest.raises(DataError, match=words):
        pool_shots(PLAIN, crowd(1, 2).features, None, quality, groups)


def test_no_shots_are_refused() -> None:
    with pytest.raises(DataError, match="no shots"):
        pool_shots(PLAIN, np.zeros((0, 6)))
