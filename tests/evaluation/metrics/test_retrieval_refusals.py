"""Wrong input is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from slimreid.errors import ConfigError, DataError
from slimreid.evaluation import KReciprocal
from support.retrieval import retrieve


def good() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "query_features": rng.normal(size=(4, 3)).astype(np.float32),
        "gallery_features": rng.normal(size=(6, 3)).astype(np.float32),
        "query_ids": np.array([0, 1, 2, 0]),
        "gallery_ids": np.array([0, 1, 2, 0, 1, 2]),
        "query_cameras": np.zeros(4, dtype=int),
        "gallery_cameras": np.array([0, 0, 0, 1, 1, 1]),
    }


def with_value(array: np.ndarray, row: int, value: float) -> np.ndarray:
    array = array.copy()
    array[row, 1] = value
    return array


def test_the_good_case_is_good() -> None:
    assert retrieve(**good()).valid_queries == 4


G = good()
WRONG_DATA: list[tuple[dict[str, Any], str]] = [
    ({"query_features": with_value(G["query_features"], 2, np.nan)}, "query_features: row 2 has NaN"),
    ({"gallery_features": with_value(G["gallery_features"], 5, -np.inf)}, "row 5 has infinity"),
    ({"gallery_features": torch.zeros(6, 4)}, "query_features have 3 channels, gallery_features 4"),
    ({"gallery_features": np.zeros((0, 3), np.float32), "gallery_ids": []}, "gallery_features is empty"),
    ({"query_features": np.zeros((4, 0), np.float32)}, "query_features is empty"),
    ({"query_features": np.zeros(4, np.float32)}, r"must be floating point \(rows, channels\)"),
    ({"query_features": np.zeros((4, 3), int)}, "must be floating point"),
    ({"query_features": torch.zeros(4, 3, dtype=torch.int32)}, "must be floating point"),
    ({"query_ids": np.array([0, 1, 2])}, r"query_cameras must have one entry per row, \(3,\), not \(4,\)"),
    ({"gallery_cameras": np.zeros((6, 1), int)}, "gallery_cameras must have one entry per row"),
    ({"query_ids": np.array([0.0, 1, 2, 0])}, "query_ids must be whole numbers or text, not float64"),
    ({"query_ids": ["0", "1", "2", "0"]}, "use one kind for both"),
    ({"query_cameras": None}, "gallery_cameras is given but query_cameras is not"),
    ({"query_cameras": None, "gallery_cameras": None}, "protocol 'camera' needs query_cameras"),
    ({"protocol": "scene"}, "protocol 'scene' needs query_scenes"),
    (
        {"protocol": "scene", "query_scenes": [0, 1, 0, 1], "gallery_scenes": [0, 0, 0, -1, 0, 0]},
        "gallery_scenes: row 3 has no scene",
    ),
    (
        {"protocol": "scene", "query_scenes": ["a", "", "", "b"], "gallery_scenes": ["a"] * 6},
        "query_scenes: row 1 has no scene",
    ),
    ({"gallery_cameras": np.zeros(6, int)}, "only from the same camera"),
    ({"query_ids": np.full(4, 77)}, "no identity of the queries is in the gallery"),
    (
        {"protocol": "none", "query_index": [0, 1, 2, 3], "gallery_index": [7, 8, 9, 9, 5, 6]},
        "gallery_index: row 3 names a sample that an earlier row names too",
    ),
    (
        {"protocol": "none", "query_index": [0, 1, 2, 3], "gallery_index": [5, 6, 7, 8, 2, 9]},
        "query row 2 and gallery row 4 are the same sample",
    ),
    (
        {"normalize": False, "gallery_features": np.full((6, 3), 1e19, np.float32)},
        "gallery_features: row 0 is too long",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG_DATA)
def test_wrong_data(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        retrieve(**(good() | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "cameras"}, "unknown protocol 'cameras'; use one of: camera, scene, none"),
        ({"max_rank": 0}, "max_rank must be at least 1"),
        ({"top_k": -1}, "top_k at least 0"),
    ],
)
def test_wrong_options(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        retrieve(**(good() | change))


@pytest.mark.parametrize("options", [{"k1": 0}, {"k2": 0}, {"original_weight": 1.5}])
def test_wrong_reranking_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        KReciprocal(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"average_precision": np.array([0.5, 0.5, 0.5])}, r"average_precision must be \(4,\)"),
        ({"average_precision": np.array([0.5, np.nan, 0.5, 0.5])}, "must be NaN for skipped queries"),
        ({"average_precision": np.array([0.5, 1.5, 0.5, 0.5])}, r"must lie in \(0, 1\]"),
        ({"matches": np.zeros(4, int)}, "at least one query"),
        ({"first_hit": np.array([0, 1, 1, 1])}, "first_hit must be a rank"),
        ({"first_hit": np.array([9, 1, 1, 1])}, "first_hit must be a rank"),
        ({"cmc": np.array([1.0, 0.5])}, "cmc must be"),
        ({"top_index": np.zeros((4, 2), int)}, "must have the same shape"),
    ],
)
def test_a_result_validates_itself(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(retrieve(**good()), **change)
