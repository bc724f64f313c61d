"""mAP, CMC, mINP and rank lists against plain loops and golden numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from reference import retrieval as reference
from slimreid.errors import DataError
from slimreid.evaluation import RetrievalResult
from slimreid.evaluation.metrics.ranking import PositiveIndex
from slimreid.evaluation.metrics.retrieval import score_chunks
from slimreid.evaluation.metrics.scores import CosineScores
from support.golden import GOLDEN
from support.retrieval import labels_of, retrieve


def random_case(seed: int, Q: int = 23, G: int = 61, D: int = 7, grid: int | None = None) -> dict[str, Any]:
    """Labels with skipped queries and shared scenes; with `grid`, features of small whole numbers (ties)."""
    rng = np.random.default_rng(seed)
    case: dict[str, Any] = {}
    for side, rows in (("query", Q), ("gallery", G)):
        features = rng.integers(-grid, grid + 1, (rows, D)) if grid else rng.normal(size=(rows, D))
        case[f"{side}_features"] = features.astype(np.float32)
        case[f"{side}_ids"] = rng.integers(0, 9, rows)
        case[f"{side}_cameras"] = rng.integers(0, 3, rows)
        case[f"{side}_scenes"] = rng.integers(0, 4, rows)
        case[f"{side}_index"] = rng.permutation(max(200, rows))[:rows] + (10_000 if side == "gallery" else 0)
    case["query_ids"][3] = 99
    for what in ("ids", "cameras", "scenes", "index"):  # the first five are on both sides
        case[f"gallery_{what}"][:5] = case[f"query_{what}"][:5]
    return case


def reference_result(
    case: dict[str, Any], protocol: str, similarity: Any, max_rank: int = 50
) -> dict[str, Any]:
    labels = {k: v.tolist() for k, v in case.items() if not k.endswith("features")}
    query, gallery = case["query_features"].tolist(), case["gallery_features"].tolist()
    scores = [[similarity(q, g) for g in gallery] for q in query]
    return reference.evaluate(scores, labels, protocol, max_rank)


def assert_same(result: RetrievalResult, expected: dict[str, Any]) -> None:
    assert_allclose(result.average_precision, expected["ap"], atol=1e-12)
    assert_allclose(result.inverse_penalty, expected["inp"], atol=1e-12)
    assert_array_equal(result.first_hit, expected["first"])
    assert_allclose(result.cmc, expected["cmc"], atol=1e-12)
    assert result.map == pytest.approx(np.nanmean(expected["ap"]), abs=1e-12)
    assert result.minp == pytest.approx(np.nanmean(expected["inp"]), abs=1e-12)
    for row, ranked in zip(result.top_index, expected["ranked"], strict=True):
        assert row[row >= 0].tolist() == ranked[: len(row)]
        assert (row >= 0).sum() == min(len(row), len(ranked))


@pytest.mark.parametrize("protocol", ["camera", "scene", "none"])
@pytest.mark.parametrize("chunk_megabytes", [0.0001, 96.0])
def test_equals_plain_loop(protocol: str, chunk_megabytes: float) -> None:
    case = random_case(0)
    result = retrieve(**case, protocol=protocol, top_k=50, chunk_megabytes=chunk_megabytes)
    assert_same(result, reference_result(case, protocol, reference.cosine))
    assert result.skipped_queries >= 1
    assert result.valid_queries + result.skipped_queries == 23
    assert np.isnan(result.average_precision[3])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    Q=st.integers(5, 12),
    G=st.integers(5, 40),
    grid=st.integers(1, 2),
    protocol=st.sampled_from(["camera", "scene", "none"]),
    chunk_megabytes=st.sampled_from([0.0001, 96.0]),
)
def test_ties_follow_the_gallery_index(
    seed: int, Q: int, G: int, grid: int, protocol: str, chunk_megabytes: float
) -> None:
    # Distances of small whole numbers are exact in float32, so equal ones are truly equal.
    case = random_case(seed, Q, G, D=2, grid=grid)
    expected = reference_result(case, protocol, reference.minus_squared_distance)
    if not any(expected["first"]):
        with pytest.raises(DataError, match="no "):
            retrieve(**case, protocol=protocol, normalize=False)
        return
    result = retrieve(**case, protocol=protocol, normalize=False, top_k=10, chunk_megabytes=chunk_megabytes)
    assert_same(result, expected)


@pytest.mark.parametrize("normalize", [True, False])
def test_identical_features_rank_by_index(normalize: bool) -> None:
    row = np.random.default_rng(1).normal(size=(1, 515)).astype(np.float32)
    G = 3001
    identity = np.arange(G) % 7
    result = retrieve(
        np.repeat(row, 20, axis=0), np.repeat(row, G, axis=0), np.arange(20) % 7, identity,
        protocol="none", normalize=normalize,
    )  # fmt: skip
    assert_array_equal(result.top_index, np.tile(np.arange(10), (20, 1)))
    assert_array_equal(result.first_hit, np.arange(20) % 7 + 1)


def test_repeated_gallery_items_tie_exactly() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(1000, 130)).astype(np.float32)
    gallery = np.concatenate([features, features[::-1]])
    result = retrieve(
        features[:50] + 0.1, gallery, np.arange(50), np.tile(np.arange(1000), 2), protocol="none", top_k=6
    )
    twins = result.top_index.reshape(50, 3, 2)
    assert_array_equal(twins.sum(axis=2), np.full((50, 3), 1999))
    assert (twins[..., 0] < twins[..., 1]).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_and_numpy_agree(dtype: torch.dtype) -> None:
    case = random_case(5)
    tensors = {k: torch.from_numpy(v) for k, v in case.items()}
    for name in ("query_features", "gallery_features"):
        tensors[name] = tensors[name].to(dtype).requires_grad_()
        wider = tensors[name].detach().to(torch.float64 if dtype == torch.float64 else torch.float32)
        case[name] = wider.numpy()
    result, expected = retrieve(**tensors), retrieve(**case)
    assert_array_equal(result.average_precision, expected.average_precision)
    assert_array_equal(result.top_index, expected.top_index)


def test_length_of_features_does_not_matter_when_normalised() -> None:
    case = random_case(6)
    expected = retrieve(**case)
    case["gallery_features"] = case["gallery_features"] * np.logspace(-15, 25, 61, dtype=np.float32)[:, None]
    result = retrieve(**case)
    assert_array_equal(result.top_index, expected.top_index)
    assert_allclose(result.top_score, expected.top_score, atol=1e-5)


def test_top_scores_are_cosines_or_minus_squared_distances() -> None:
    case = random_case(7)
    for normalize in (True, False):
        result = retrieve(**case, normalize=normalize, top_k=20)
        q, g = case["query_features"], case["gallery_features"]
        if normalize:
            q, g = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, g))
            expected = np.einsum("qd,qkd->qk", q, g[result.top_index])
        else:
            expected = -np.square(q[:, None] - g[result.top_index]).sum(axis=2)
        assert_allclose(result.top_score, expected, atol=1e-4)
        assert (np.diff(result.top_score, axis=1) <= 0).all()
        right = case["gallery_ids"][result.top_index] == case["query_ids"][:, None]
        assert_array_equal(result.top_is_match, right)


def test_lists_end_where_the_candidates_end() -> None:
    result = retrieve(np.eye(2), np.eye(2), [0, 0], [0, 0], [1, 2], [1, 2], top_k=3)
    assert_array_equal(result.top_index, [[1, -1, -1], [0, -1, -1]])
    assert np.isnan(result.top_score[:, 1:]).all()
    assert_array_equal(result.top_is_match, [[True, False, False]] * 2)
    assert result.map == result.minp == result.rank(1) == 1.0
    assert retrieve(np.eye(2), np.eye(2), [0, 0], [0, 0], [1, 2], [1, 2], top_k=0).top_index.shape == (2, 0)


def test_chunks_bound_the_memory() -> None:
    case = random_case(0, Q=97, G=1000)
    source = CosineScores(case["query_features"], case["gallery_features"])
    index = PositiveIndex(labels_of(case).encoded)
    seen = []
    for rows, scores, positives in score_chunks(source, index, chunk_megabytes=0.5):
        assert 3 * scores.numel() * scores.element_size() <= 0.5 * 2**20
        assert positives.query.max(initial=0) < len(scores)
        seen += range(rows.start, rows.stop)
    assert seen == list(range(97))
    assert [len(s) for _, s, _ in score_chunks(source, index, chunk_megabytes=1e-9)] == [1] * 97


def test_text_labels_and_read_only_arrays() -> None:
    case = random_case(8)
    expected = retrieve(**case)
    for name in list(case):
        if name.endswith("features"):
            case[name].flags.writeable = False
        else:
            case[name] = [f"n{value}" for value in case[name]]
    result = retrieve(**case)
    assert_array_equal(result.average_precision, expected.average_precision)
    assert result.query_ids[3] == "n99"


def test_a_row_of_zeros_is_similar_to_nothing() -> None:
    gallery = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    result = retrieve(np.array([[1.0, 0.0]]), gallery, [1], [0, 1, 0], protocol="none")
    assert_array_equal(result.top_index[0, :3], [2, 1, 0])


def test_to_dict_is_json_and_agrees() -> None:
    result = retrieve(**random_case(0), roc=True, max_rank=12)
    figures = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert list(result.to_dict(ranks=(2, 3))["cmc"]) == ["2", "3"]
    assert figures["map"] == result.map
    assert figures["cmc"] == {"1": result.rank(1), "5": result.rank(5), "10": result.rank(10)}
    assert [point["false_match_rate"] for point in figures["roc"]] == [1e-2, 1e-3, 1e-4]
    with pytest.raises(DataError, match="max_rank of at least 20"):
        result.rank(20)


@pytest.mark.parametrize(("protocol", "name"), [("camera", "market"), ("scene", "msvr")])
def test_golden_numbers(protocol: str, name: str) -> None:
    stored = np.load(GOLDEN / "metrics.npz")
    names = [
        f"{side}_{what}" for what in ("features", "ids", "cams", "scenes") for side in ("query", "gallery")
    ]
    result = retrieve(*(stored[name] for name in names), protocol=protocol)
    assert result.map == pytest.approx(float(stored[f"{name}_map"]), abs=1e-6)
    assert_allclose(result.cmc, stored[f"{name}_cmc"], atol=1e-6)
    assert result.skipped_queries == 2
