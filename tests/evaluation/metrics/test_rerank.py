"""Sparse re-ranking against the published dense algorithm and golden numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from reference import retrieval as reference
from slimreid.errors import DataError
from slimreid.evaluation import KReciprocal, RerankedScores
from support.golden import GOLDEN
from support.retrieval import retrieve


def clusters(seed: int, Q: int, G: int, identities: int = 15, D: int = 24) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(identities, D))
    ids = {side: rng.integers(0, identities, rows) for side, rows in (("query", Q), ("gallery", G))}
    noise = {side: rng.normal(size=(len(i), D)) * 1.3 for side, i in ids.items()}
    return {f"{side}_features": (centres[i] + noise[side]) for side, i in ids.items()} | {
        f"{side}_ids": i for side, i in ids.items()
    }


@pytest.mark.parametrize(("k1", "k2", "weight"), [(20, 6, 0.3), (7, 1, 0.0), (5, 9, 0.8), (1, 2, 0.5)])
@pytest.mark.parametrize("chunk_megabytes", [0.02, 0.03, 96.0])  # chunks of 10 and 15 rows, and all at once
def test_equals_the_dense_algorithm(k1: int, k2: int, weight: float, chunk_megabytes: float) -> None:
    case = clusters(k1, 25, 140)
    query, gallery = case["query_features"], case["gallery_features"]
    source = RerankedScores(query, gallery, KReciprocal(k1, k2, weight), chunk_megabytes=chunk_megabytes)
    expected = reference.dense_k_reciprocal(query, gallery, k1, k2, weight)
    assert source.shape == (25, 140)
    assert_allclose(-source.scores(0, 25).numpy(), expected, atol=1e-6)
    assert_allclose(-source.scores(11, 17).numpy(), expected[11:17], atol=1e-6)


def test_more_neighbours_than_items() -> None:
    case = clusters(3, 4, 9, identities=3)
    query, gallery = case["query_features"], case["gallery_features"]
    expected = reference.dense_k_reciprocal(query, gallery, 20, 6, 0.3)
    assert_allclose(-RerankedScores(query, gallery).scores(0, 4).numpy(), expected, atol=1e-6)


def test_evaluation_ranks_by_reranked_distance() -> None:
    case = clusters(4, 30, 200)
    options = KReciprocal(k1=10, k2=3)
    result = retrieve(**case, protocol="none", rerank=options, top_k=200, roc=True)
    distance = reference.dense_k_reciprocal(case["query_features"], case["gallery_features"], 10, 3, 0.3)
    labels = {name: case[name].tolist() for name in ("query_ids", "gallery_ids")}
    expected = reference.evaluate((-distance).tolist(), labels, "none", 50)
    assert_allclose(result.average_precision, expected["ap"], atol=1e-3)
    assert_allclose(-result.top_score, np.sort(distance, axis=1), atol=1e-6)
    assert result.roc is not None
    assert result.roc.true_pairs + result.roc.false_pairs == 30 * 200
    plain = retrieve(**case, protocol="none")
    assert result.map > plain.map + 0.02


def test_normalize_is_respected() -> None:
    case = clusters(5, 10, 60)
    query, gallery = case["query_features"], case["gallery_features"]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, gallery)]
    expected = RerankedScores(*unit).scores(0, 10)
    assert_allclose(RerankedScores(query, gallery).scores(0, 10), expected, atol=1e-9)
    assert_allclose(RerankedScores(*unit, normalize=False).scores(0, 10), expected, atol=1e-9)
    assert not np.allclose(RerankedScores(query, gallery, normalize=False).scores(0, 10), expected, atol=1e-3)


def test_features_too_long_to_square_are_refused() -> None:
    with pytest.raises(DataError, match="query_features: row 1 is too long"):
        RerankedScores(np.array([[1.0], [1e20]], np.float32), np.ones((3, 1), np.float32), normalize=False)


def test_identical_features_give_finite_distances() -> None:
    same = np.ones((1, 6), np.float32)
    scores = RerankedScores(same.repeat(5, 0), same.repeat(40, 0)).scores(0, 5)
    assert bool(scores.isfinite().all())
    assert float(scores.min()) >= -1
    assert float(scores.max()) <= 0


def test_golden_numbers() -> None:
    stored = np.load(GOLDEN / "metrics.npz")
    arguments = [
        stored[f"{side}_{what}"] for what in ("features", "ids", "cams") for side in ("query", "gallery")
    ]
    options = KReciprocal(int(stored["k1"]), int(stored["k2"]), float(stored["lambda_value"]))
    result = retrieve(*arguments, rerank=options)
    assert result.map == pytest.approx(float(stored["rerank_map"]), abs=2e-3)
    source = RerankedScores(arguments[0], arguments[1], options)
    # The stored distances were made in half precision.
    assert_allclose(-source.scores(0, 60).numpy(), stored["rerank_distance"], atol=2e-3)
