"""One scale for all pairs of subsets, from a site's own samples."""

from __future__ import annotations

import numpy as np
import pytest

from slimreid.errors import DataError
from slimreid.gallery.decisions.scale import Samples, in_turn, site_similarity
from slimreid.inference.similarity import Similarity, fit_impostors
from support.gallery import PLAIN, crowd, mask_of


def test_figures_are_those_of_the_site() -> None:
    samples = crowd(identities=30, each=4)
    found = site_similarity(PLAIN, samples)
    scores = found(samples.features, samples.features, samples.present, samples.present)
    different = samples.identity[:, None] != samples.identity
    assert np.median(scores[different]) == pytest.approx(0, abs=1e-3)
    assert (scores[different] > 1).mean() == pytest.approx(0.01, abs=2e-3)


def test_every_pair_of_subsets_comes_to_the_same_scale() -> None:
    parts = [crowd(30, 4, present=mask_of(*subset), seed=n) for n, subset in enumerate(PLAIN.subsets)]
    samples = Samples(
        *(np.concatenate([getattr(p, k) for p in parts]) for k in ("features", "present", "identity"))
    )
    found = site_similarity(PLAIN, samples)
    for first in parts:
        for second in parts:
            scores = found(first.features, second.features, first.present, second.present)
            different = first.identity[:, None] != second.identity
            if np.isnan(scores).all():
                continue
            assert np.median(scores[different]) == pytest.approx(0, abs=1e-2)
            assert (scores[different] > 1).mean() == pytest.approx(0.01, abs=3e-3)


def test_too_few_identities_change_nothing() -> None:
    assert site_similarity(PLAIN, crowd(identities=19, each=4)) is PLAIN


def test_pairs_that_the_site_does_not_have_move_with_the_others() -> None:
    trained = crowd(40, 4, seed=1)
    parts = []
    for subset in PLAIN.subsets:
        mask = np.tile(mask_of(*subset), (len(trained.features), 1))
        parts.append((np.asarray(PLAIN.prepare(trained.features, mask).values), trained.identity))
    table = fit_impostors(PLAIN, parts)
    assert table is not None
    base = Similarity(PLAIN.modalities, PLAIN.blocks, table)
    found = site_similarity(base, crowd(30, 4, alike=1.0))  # everybody is more alike than in training
    assert found.impostors is not None
    low, high = np.moveaxis(found.impostors, 2, 0)
    complete = len(PLAIN.subsets) - 1
    shift = (low[complete, complete] - table[complete, complete, 0]) / np.ptp(table[complete, complete])
    assert shift > 0.5
    assert (low[0, 0] - table[0, 0, 0]) / np.ptp(table[0, 0]) == pytest.approx(shift, abs=1e-3)
    assert (high > low)[PLAIN.shares].all()
    assert np.isnan(low[~PLAIN.shares]).all()


def test_samples_are_taken_in_turn() -> None:
    numbers = np.array([0, 0, 0, 1, 1, 2])
    assert in_turn(numbers, np.arange(6)).tolist() == [0, 3, 5, 1, 4, 2]
    assert in_turn(numbers, np.array([2, 4, 1])).tolist() == [2, 4, 1]
    assert in_turn(numbers, np.zeros(0, np.int64)).tolist() == []


def test_lengths_must_agree() -> None:
    with pytest.raises(DataError, match="one length, not 2, 1 and 2"):
        Samples(np.zeros((2, 3), np.float32), np.ones((1, 3), bool), np.arange(2))
