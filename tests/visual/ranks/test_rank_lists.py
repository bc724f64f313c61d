"""Rank lists: who is shown, in which order, and how right and wrong are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from numpy.testing import assert_allclose, assert_array_equal

from slimreid.data.manifest import read_manifest
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation.metrics.scores import CosineScores
from slimreid.visual.ranks.rank_lists import (
    FirstItems,
    FoundItem,
    RankList,
    choose_queries,
    open_samples,
    rank_list,
    result_lists,
)
from slimreid.visual.ranks.rank_sheet import FRAME, INNER, draw_rank_lists, score_digits, sheet_geometry
from slimreid.visual.style import DARK, LIGHT, LOOKS
from support.pictures import retrieval_case, retrieval_result, solid
from support.retrieval import labels_of

RED, GREEN, BLUE = (220, 10, 10), (10, 200, 10), (10, 10, 220)


def expected_items(case, query, length):
    """The first items by a plain loop over the gallery, without same-camera partners of the query."""
    q = case["query_features"][query]
    ranked = []
    for item, g in enumerate(case["gallery_features"]):
        same = case["gallery_ids"][item] == case["query_ids"][query]
        if same and case["gallery_cameras"][item] == case["query_cameras"][query]:
            continue
        cosine = q @ g / np.linalg.norm(q) / np.linalg.norm(g)
        ranked.append((-cosine, item, bool(same)))
    return sorted(ranked)[:length]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), query=st.integers(0, 14), length=st.integers(1, 60))
def test_the_first_items_are_those_of_a_plain_loop(seed, query, length):
    case = retrieval_case(seed)
    source = CosineScores(case["query_features"], case["gallery_features"])
    found = FirstItems.from_scores(source, labels_of(case), query, length)
    wanted = expected_items(case, query, length)
    assert found.index.tolist() == [item for _, item, _ in wanted]
    assert_allclose(found.score, [-minus for minus, _, _ in wanted], atol=1e-6)
    assert found.is_match.tolist() == [right for _, _, right in wanted]


def test_partners_from_the_same_camera_are_not_shown():
    case = retrieval_case()
    source = CosineScores(case["query_features"], case["gallery_features"])
    shown = FirstItems.from_scores(source, labels_of(case), 0, 54)
    ignored = (case["gallery_ids"] == case["query_ids"][0]) & (
        case["gallery_cameras"] == case["query_cameras"][0]
    )
    assert ignored.sum() == 3
    assert set(shown.index.tolist()) == set(np.flatnonzero(~ignored).tolist())
    everything = FirstItems.from_scores(source, labels_of(case | {"protocol": "none"}), 0, 54)
    assert len(everything.index) == 54


def test_lists_from_a_result_and_from_scores_agree():
    case = retrieval_case()
    result = retrieval_result()
    source = CosineScores(case["query_features"], case["gallery_features"])
    for query in range(len(case["query_ids"])):  # the last one has no correct match
        first, second = (
            FirstItems.from_result(result, query),
            FirstItems.from_scores(source, labels_of(case), query),
        )
        assert_array_equal(first.index, second.index)
        assert_allclose(first.score, second.score, atol=1e-6)
        assert_array_equal(first.is_match, second.is_match)
    with pytest.raises(DataError, match="top_k of at least 11"):
        FirstItems.from_result(result, 0, 11)
    for make in (
        lambda: FirstItems.from_result(result, 15),
        lambda: FirstItems.from_scores(source, labels_of(case), -1),
    ):
        with pytest.raises(DataError, match="they are 0 to 14"):
            make()


def test_best_worst_and_random_queries():
    result = retrieval_result()
    chosen = choose_queries(result, best=3, worst=2, random=2, seed=5)
    assert chosen == choose_queries(result, best=3, worst=2, random=2, seed=5)
    precision = result.average_precision
    assert precision[chosen["best"][0]] == np.nanmax(precision)
    assert precision[chosen["worst"][0]] == np.nanmin(precision)
    everything = [q for queries in chosen.values() for q in queries]
    assert len(everything) == len(set(everything)) == 7
    assert 14 not in everything, "a skipped query has no average precision"
    assert len({result.query_ids[q] for q in chosen["best"]}) == 3, "different people"
    others = [choose_queries(result, 0, 0, 4, seed=s)["random"] for s in range(4)]
    assert len({tuple(o) for o in others}) > 1
    every = choose_queries(result, best=50, worst=50, random=50)
    assert sorted(every["best"]) == list(range(14))
    assert every["worst"] == every["random"] == []
    with pytest.raises(ConfigError, match="must not be negative"):
        choose_queries(result, best=-1)


def test_lists_say_what_they_are():
    case, result = retrieval_case(), retrieval_result()
    lists = result_lists(
        result,
        {"best": [2]},
        lambda query: {"rgb": solid((query, 0, 0))},
        lambda item: {"rgb": solid((0, item, 0))},
        [f"q{c}" for c in case["query_cameras"]],
        [f"g{c}" for c in case["gallery_cameras"]],
        length=4,
    )
    (found,) = lists
    assert found.title.startswith("best · query 2 · identity 0 · AP ")
    assert f"{100 * result.average_precision[2]:.1f} · {result.matches[2]} correct matches" in found.title
    assert found.query["rgb"].getpixel((0, 0)) == (2, 0, 0)
    assert found.query_camera == f"q{case['query_cameras'][2]}"
    assert [i.pictures["rgb"].getpixel((0, 0))[1] for i in found.items] == result.top_index[2, :4].tolist()
    assert [i.camera for i in found.items] == [
        f"g{case['gallery_cameras'][k]}" for k in result.top_index[2, :4]
    ]
    assert [i.is_match for i in found.items] == result.top_is_match[2, :4].tolist()


def a_list(*right: bool, pictures=None, title="") -> RankList:
    pictures = pictures or {"rgb": solid(RED), "tir": solid(BLUE)}
    items = [FoundItem(pictures, r, 0.5 + k / 10, str(k)) for k, r in enumerate(right)]
    return RankList(title, {"rgb": solid(GREEN), "tir": solid(GREEN)}, "7", items)


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(round(255 * c) for c in to_rgb(colour))


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_frames_are_solid_around_right_and_dashed_around_wrong(look):
    found = a_list(True, False)
    plan = sheet_geometry([found], ["rgb", "tir"], 80)
    pixels = np.asarray(draw_rank_lists([found], ["rgb", "tir"], look, cell_height=80))
    width, height = plan.box
    for rank, colour in ((0, look.right), (1, look.wrong)):
        x, y = plan.left(rank), plan.top(0)
        left_edge = pixels[y : y + height, x : x + FRAME]
        share = (left_edge == rgb(colour)).all(axis=2).mean()
        inside = pixels[y + FRAME : y + height - FRAME, x + FRAME : x + FRAME + INNER]
        assert (inside == rgb(look.paper)).all(), "pictures do not touch the frame"
        assert share == 1 if rank == 0 else 0.4 < share < 0.8
    x, y = plan.left(-1), plan.top(0)
    assert (pixels[y : y + height, x] == rgb(look.ink)).all(), "the query has a frame of its own"


def test_badges_differ_in_shape():
    found = a_list(True, False)
    plan = sheet_geometry([found], ["rgb", "tir"], 80)
    pixels = np.asarray(draw_rank_lists([found], ["rgb", "tir"], cell_height=80))
    shapes = []
    for rank, colour in ((0, LIGHT.right), (1, LIGHT.wrong)):
        corner = plan.left(rank) + plan.box[0], plan.top(0)
        badge = pixels.astype(int)[corner[1] - 10 : corner[1] + 14, corner[0] - 14 : corner[0] + 10]
        shapes.append((np.abs(badge - np.array(rgb(colour))) < 25).all(axis=2))
        light = (badge == rgb(LIGHT.paper)).all(axis=2)[8:16, 8:16]
        assert light.any(), "a mark inside the badge"
    assert shapes[0].sum() > 100
    assert shapes[1].sum() > 60
    assert (shapes[0] != shapes[1]).mean() > 0.1


def test_modalities_stand_below_each_other_in_the_given_order():
    found = a_list(True)
    plan = sheet_geometry([found], ["rgb", "tir"], 80)
    sheet = draw_rank_lists([found], ["rgb", "tir"], cell_height=80)
    x, y = plan.left(0) + FRAME + INNER + plan.cell[0] // 2, plan.top(0) + FRAME + INNER
    assert sheet.getpixel((x, y + 40)) == RED
    assert sheet.getpixel((x, y + 80 + INNER + 40)) == BLUE
    swapped = draw_rank_lists([found], ["tir", "rgb"], cell_height=80)
    assert swapped.getpixel((x, y + 40)) == BLUE


@pytest.mark.parametrize(
    "absent", [{"rgb": solid(RED), "tir": None}, {"rgb": solid(RED)}], ids=["none", "left out"]
)
def test_an_absent_modality_is_hatched_and_labelled(absent):
    found = a_list(True, pictures=absent)
    plan = sheet_geometry([found], ["rgb", "tir"], 80)
    pixels = np.asarray(draw_rank_lists([found], ["rgb", "tir"], cell_height=80))
    x, y = plan.left(0) + FRAME + INNER, plan.top(0) + FRAME + INNER + 80 + INNER
    box = pixels[y : y + 80, x : x + plan.cell[0]]
    hatch = (box == rgb(LIGHT.edge)).all(axis=2)
    assert 0.1 < hatch.mean() < 0.5
    middle = box[30:50]
    assert (middle < 160).all(axis=2).any(), "letters in the middle"
    assert not (box[:25] < 160).all(axis=2).any(), "and nowhere else"


def ink_at(found, changed, area):
    """Whether two sheets differ in an area (left, top, right, bottom)."""
    sheets = [np.asarray(draw_rank_lists([f], ["rgb", "tir"], cell_height=80)) for f in (found, changed)]
    left, top, right, bottom = area
    return (sheets[0][top:bottom, left:right] != sheets[1][top:bottom, left:right]).any()


def test_distance_and_camera_stand_below_their_item():
    found = a_list(True, True)
    plan = sheet_geometry([found], ["rgb", "tir"], 80)
    bottom = plan.top(0) + plan.box[1]
    below = [(plan.left(k), bottom, plan.left(k) + plan.box[0], bottom + 2 * plan.line) for k in (0, 1)]
    first = found.items[0]
    for other in (FoundItem(first.pictures, True, 0.99, "0"), FoundItem(first.pictures, True, 0.5, "9")):
        changed = RankList("", found.query, "7", [other, found.items[1]])
        assert ink_at(found, changed, below[0])
        assert not ink_at(found, changed, below[1])


def test_close_distances_get_more_digits():
    assert score_digits([0.2, 0.9]) == 2
    assert score_digits([0.51, 0.52]) == 3
    assert score_digits([0.5001, 0.5003]) == 4


def test_lists_go_down_and_may_be_short_or_empty():
    lists = [a_list(True, False, True, title="a" * 60), a_list(False), a_list()]
    plan = sheet_geometry(lists, ["rgb", "tir"], 48)
    sheet = draw_rank_lists(lists, ["rgb", "tir"], DARK, cell_height=48)
    assert plan.columns == 3
    for number in range(3):
        x, y = plan.left(-1) + plan.box[0] // 2, plan.top(number) + FRAME + INNER + 20
        assert sheet.getpixel((x, y)) == GREEN
    area = sheet.crop((plan.left(0) - 4, plan.top(2), sheet.width, sheet.height))
    assert area.getcolors() == [(area.width * area.height, rgb(DARK.paper))], "nothing was found"
    with pytest.raises(ConfigError, match="at least one query and one modality"):
        draw_rank_lists([], ["rgb"])
    with pytest.raises(ConfigError, match="cell_height"):
        draw_rank_lists(lists, ["rgb"], cell_height=8)


def test_pictures_come_from_the_files(small_set):
    manifest = read_manifest(small_set)
    queries = manifest.select("query")
    pictures = open_samples(manifest, queries)(1)
    assert set(pictures) == {"rgb", "nir", "tir"}
    assert pictures["rgb"].size == (16, 32)
    assert set(open_samples(manifest, queries, without=("nir", "tir"))(1)) == {"rgb"}
    found = FirstItems(np.array([2]), np.array([0.25], dtype=np.float32), np.array([True]))
    shown = rank_list(
        found, "t", pictures, "1", open_samples(manifest, manifest.select("gallery")), ["1"] * 12
    )
    assert shown.items[0].score == 0.25
    assert shown.items[0].pictures["nir"].size == (16, 32)
