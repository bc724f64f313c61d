"""Identities proposed for unlabelled rows, against plain average linkage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reference.identification import average_linkage
from slimreid.errors import DataError
from slimreid.gallery.decisions import clustering
from slimreid.gallery.decisions.clustering import propose_identities
from support.gallery import PLAIN, crowd


def as_sets(labels: np.ndarray) -> set[frozenset[int]]:
    alone = {frozenset([int(i)]) for i in np.flatnonzero(labels < 0)}
    return alone | {frozenset(np.flatnonzero(labels == n).tolist()) for n in range(labels.max() + 1)}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), threshold=st.sampled_from([0.1, 0.3, 0.5, 0.7]))
@example(seed=380, threshold=0.3)  # averages that are exactly the threshold
@example(seed=825, threshold=0.3)
def test_equals_plain_average_linkage(seed: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    rows = crowd(4, 4, noise=1.0, seed=seed)
    present = rng.random((16, 3)) < 0.6
    present[np.arange(16), rng.integers(0, 3, 16)] = True
    found = propose_identities(PLAIN, rows.features, threshold, present)
    scores = PLAIN(rows.features, rows.features, present, present)
    wanted = average_linkage(scores.tolist(), threshold)
    assert as_sets(found.labels) == {frozenset(cluster) for cluster in wanted}


def test_clear_identities_are_found_largest_first() -> None:
    rows = crowd(6, 5, noise=0.2)
    features = np.concatenate([rows.features, rows.features[:1] + 0.01, -rows.features[:1]])
    found = propose_identities(PLAIN, features, 0.6)
    assert found.labels[-1] == -1
    assert found.labels[-2] == 0
    assert found.labels[:30].tolist() == np.repeat(np.arange(6), 5).tolist()
    assert found.split == 0


def test_small_chunks_change_nothing(monkeypatch) -> None:
    rows = crowd(6, 5, noise=0.8)
    whole = propose_identities(PLAIN, rows.features, 0.4)
    monkeypatch.setattr(clustering, "_SCORES_AT_ONCE", 70)
    np.testing.assert_array_equal(propose_identities(PLAIN, rows.features, 0.4).labels, whole.labels)


def test_a_component_that_is_too_large_is_split_and_said(monkeypatch) -> None:
    rows = crowd(6, 5, noise=0.2)
    monkeypatch.setattr(clustering, "LARGEST", 10)
    found = propose_identities(PLAIN, rows.features, -0.9)  # everybody is like everybody
    assert found.split >= 30
    for label in range(found.labels.max() + 1):
        assert (found.labels == label).sum() <= 10


def test_a_higher_threshold_makes_more_clusters() -> None:
    rows = crowd(10, 5, noise=1.0)
    sizes = [len(as_sets(propose_identities(PLAIN, rows.features, t).labels)) for t in (0.0, 0.3, 0.6, 0.99)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 50


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_galleries(n: int) -> None:
    assert propose_identities(PLAIN, crowd(2, 1).features[:n], 0.5).labels.tolist() == [-1] * n


def test_rows_that_share_no_modality_are_not_joined() -> None:
    features = crowd(1, 2, noise=0.0).features
    found = propose_identities(PLAIN, features, 0.5, [[True, False, False], [False, False, True]])
    assert found.labels.tolist() == [-1, -1]


def test_a_threshold_must_be_a_number() -> None:
    with pytest.raises(DataError, match="threshold must be a number"):
        propose_identities(PLAIN, crowd(2, 2).features, float("nan"))
