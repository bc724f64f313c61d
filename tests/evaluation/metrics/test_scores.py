"""Scores by a model's similarity: gallery items with the same features are equal, however many there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.inference.similarity import Similarity

NAMES = ("rgb", "tir")


@pytest.mark.parametrize("repeats", [0, 1, 2, 5])
def test_repeated_gallery_items_get_one_score(repeats):
    similarity = Similarity(NAMES, tuple((name,) for name in NAMES))
    rng = np.random.default_rng(0)
    query, gallery = (rng.normal(size=(n, 16)).astype(np.float32) for n in (3, 8))
    gallery[8 - repeats :] = gallery[0]
    source = SimilarityScores(similarity, similarity.prepare(query), similarity.prepare(gallery))
    scores = source.scores(0, 3)
    np.testing.assert_allclose(scores, similarity(query, gallery), rtol=1e-5)
    assert all(torch.equal(scores[:, n], scores[:, 0]) for n in range(8 - repeats, 8))


def test_equal_features_seen_in_other_modalities_are_not_repeats():
    impostors = np.zeros((3, 3, 2), dtype=np.float32)
    impostors[..., 1] = np.arange(1, 10).reshape(3, 3)
    impostors = (impostors + impostors.transpose(1, 0, 2)) / 2
    similarity = Similarity(("rgb", "tir"), (("rgb",), ("rgb", "tir")), impostors)
    features = np.ones((2, 8), dtype=np.float32)
    features[:, 4:] = 0
    gallery = similarity.prepare(features, [[True, False], [True, True]])
    source = SimilarityScores(similarity, similarity.prepare(features[:1], [[True, True]]), gallery)
    seen_in_part, complete = source.scores(0, 1)[0].tolist()
    assert seen_in_part != complete
